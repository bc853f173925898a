package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a helper process running: started on the first request, again after it died. It ends when its input does, and so
 * with the JVM.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class KeyHelper implements Function {
  private static final int LONGEST_MESSAGE = 4000;

  /** Bytes of a request, as the helper has it: what a file makes longer is not sent. */
  private static final int LONGEST_REQUEST = 512 * 1024;

  /** What is not printable, but for the space. */
  private static final Pattern UNSAFE = Pattern.compile("[\\p{C}\\p{Z}&&[^ ]]");

  private final String python;
  private Conversation current;

  KeyHelper(String python) {
    this.python = python;
  }

  /** {request without its id, milliseconds to wait} to the answer; IllegalStateException with the reason if there is none. */
  public Object apply(Object argument) {
    Object[] asked = (Object[]) argument;
    IOException failure = null;
    // Wrapping and unwrapping may be repeated, so one that was cut off by the helper's end is asked again.
    for (int attempt = 0; attempt < 2; attempt++) {
      try {
        return conversation().ask((String) asked[0], ((Long) asked[1]).longValue());
      } catch (IOException e) {
        failure = e;
      }
    }
    throw new IllegalStateException(failure.getMessage());
  }

  private synchronized Conversation conversation() throws IOException {
    if (current == null || current.ended) {
      current = new Conversation(python);
    }
    return current;
  }

  /**
   * As safe_text in bloomseal/core/text.py: nothing that forges a line of a log, passes for another name or steers a terminal. No
   * more than a message holds.
   */
  static String safe(String text) {
    boolean longer = text.length() > LONGEST_MESSAGE;
    Matcher unsafe = UNSAFE.matcher(longer ? text.substring(0, LONGEST_MESSAGE) : text);
    StringBuffer shown = new StringBuffer();
    while (unsafe.find()) {
      int code = unsafe.group().codePointAt(0);
      unsafe.appendReplacement(shown, String.format(code < 0x10000 ? "\\\\u%04x" : "\\\\U%08x", new Object[] {Integer.valueOf(code)}));
    }
    return unsafe.appendTail(shown) + (longer ? " ..." : "");
  }

  /** One helper process, from its start to its end. Many tasks talk with it at the same time. */
  private static final class Conversation {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Logger LOG = LoggerFactory.getLogger("bloomseal.spark.KeyHelper");

    volatile boolean ended;
    private volatile boolean greeted;
    private volatile String lastWords = "";
    private final String python;
    private final Process process;
    private final OutputStream requests;
    private final Map waiting = new ConcurrentHashMap();
    private final AtomicLong ids = new AtomicLong();
    private final Thread remarks;

    Conversation(String python) throws IOException {
      this.python = python;
      // -P: what stands in the working directory must not be imported.
      process = new ProcessBuilder(Arrays.asList(new String[] {python, "-P", "-m", "bloomseal.keytools.helper"})).start();
      requests = process.getOutputStream();
      remarks = start("remarks", new Runnable() {
        public void run() {
          passOn();
        }
      });
      start("answers", new Runnable() {
        public void run() {
          handOut();
        }
      });
      LOG.info("started the key helper, process " + process.pid());
    }

    String ask(String request, long millis) throws IOException {
      Long id = Long.valueOf(ids.incrementAndGet());
      CompletableFuture answer = new CompletableFuture();
      waiting.put(id, answer);
      try {
        byte[] line = ("{\"id\":" + id + "," + request.substring(1) + "\n").getBytes(StandardCharsets.UTF_8);
        if (line.length > LONGEST_REQUEST) {
          throw new IllegalStateException("a request of " + line.length + " bytes; the limit is " + LONGEST_REQUEST + " [invalid]");
        }
        synchronized (requests) {
          requests.write(line);
          requests.flush();
        }
        if (ended) {
          throw gone();
        }
        return (String) answer.get(millis, TimeUnit.MILLISECONDS);
      } catch (TimeoutException e) {
        // At once, and not only where its output ends: who asks next must not be told to talk with it.
        ended = true;
        process.destroyForcibly();
        throw new IllegalStateException("the key helper did not answer within " + (millis / 1000) + " s [unreachable]");
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("interrupted while waiting for the key helper");
      } catch (ExecutionException e) {
        throw gone();
      } catch (IOException e) {
        throw gone();
      } finally {
        waiting.remove(id);
      }
    }

    private IOException gone() {
      if (greeted) {
        return new IOException("the key helper ended; the log may say why [unreachable]");
      }
      hearItOut();
      // Nothing secret has passed yet, so its own words may be told.
      return new IOException("the key helper did not start with " + python + ": " + lastWords
          + ". Bloomseal must be installed for that interpreter on every machine; enable(python=...) names another [unusable]");
    }

    /** Waits for a dying process's last words; ending it by force would close the stream that has them. */
    private void hearItOut() {
      try {
        process.waitFor(2, TimeUnit.SECONDS);
        remarks.join(2000);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }

    /** Answers, until there are no more. */
    private void handOut() {
      try {
        BufferedReader reader = reader(process.getInputStream());
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
          JsonNode answer = JSON.readTree(line);
          if (!greeted) {
            if (!answer.hasNonNull("protocol") || answer.get("protocol").asInt() != 1) {
              LOG.error("the key helper speaks another protocol; install one version of Bloomseal everywhere");
              break;
            }
            greeted = true;
          } else if (answer.hasNonNull("id")) {
            CompletableFuture asked = (CompletableFuture) waiting.get(Long.valueOf(answer.get("id").asLong()));
            if (asked != null) {
              asked.complete(line);
            }
          }
        }
      } catch (IOException e) {
        LOG.warn("the key helper's answers broke off"); // without the cause, which could quote one
      }
      ended = true;
      hearItOut();
      process.destroyForcibly();
      LOG.warn("the key helper has ended; it is started again when it is needed");
      for (Object left : waiting.values()) {
        ((CompletableFuture) left).completeExceptionally(new IOException("ended"));
      }
    }

    /** The helper's standard error to the log. */
    private void passOn() {
      try {
        BufferedReader reader = reader(process.getErrorStream());
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
          lastWords = safe(line);
          LOG.warn(lastWords);
        }
      } catch (IOException e) {
        LOG.debug("the key helper's remarks broke off");
      }
    }

    private static BufferedReader reader(InputStream stream) {
      return new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
    }

    private static Thread start(String name, Runnable work) {
      Thread thread = new Thread(work, "bloomseal key helper: " + name);
      thread.setDaemon(true);
      thread.start();
      return thread;
    }
  }
}
