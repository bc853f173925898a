package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.spark.SparkFiles;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A KMS client for parquet-java that asks Bloomseal's key helper, a Python process of which each JVM has one. The protocol is
 * described in bloomseal/keytools/helper.py.
 *
 * Which KMS is asked and which program is started says a file of the application's, {@code bloomseal-DIGEST.json}, that
 * {@code bloomseal.spark.enable} has given to Spark for all its machines. It holds no secrets: {@code kms} (a URI), {@code python} (the
 * interpreter), {@code timeout} and {@code lifetime} (seconds).
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class KeyBridge implements KmsClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map BRIDGES = new ConcurrentHashMap();

    /** Bytes of a request, as the helper has it: what a file makes longer is not sent. */
    private static final int LONGEST_REQUEST = 512 * 1024;

    private static final int LONGEST_NAME = 200;
    private static final int LONGEST_MESSAGE = 4000;

    private String settings;
    private String python;
    private long millis;

    /** The address may be one that a file names. It is never followed: only the KMS that the session has configured is asked. */
    public void initialize(Configuration conf, String instance, String url, String token) throws KeyAccessDeniedException {
        hush();
        JsonNode given = given(token);
        int seconds = given.get("timeout").asInt();
        ObjectNode node = JSON.createObjectNode();
        node.put("kms", given.get("kms").textValue());
        node.put("timeout", seconds);
        node.put("lifetime", given.get("lifetime").asInt());
        settings = node.toString();
        python = given.get("python").textValue();
        // The helper keeps its own time; this is for one that is stuck, or that takes long to start.
        millis = 1000L * (seconds + 30);
    }

    /**
     * What enable was given. Nothing is taken from the configuration: Spark merges the options of a table into it, and whoever writes to
     * the catalog would choose the program that is started here, and the KMS that is sent our keys. The token, an option too, chooses
     * among what this application was given, no more.
     */
    static JsonNode given(String token) {
        if (token == null || !token.matches("bloomseal:[0-9a-f]{64}")) {
            throw new ParquetCryptoRuntimeException("no KMS is configured; call bloomseal.spark.enable(spark, kms=...)");
        }
        String digest = token.substring("bloomseal:".length());
        try {
            byte[] text = Files.readAllBytes(new File(SparkFiles.get("bloomseal-" + digest + ".json")).toPath());
            StringBuilder hex = new StringBuilder();
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(text);
            for (int i = 0; i < hash.length; i++) {
                hex.append(String.format("%02x", new Object[] {Byte.valueOf(hash[i])}));
            }
            if (!hex.toString().equals(digest)) {
                throw new ParquetCryptoRuntimeException("the settings of bloomseal.spark.enable have changed on their way to this machine");
            }
            return JSON.readTree(text);
        } catch (IOException e) {
            throw new ParquetCryptoRuntimeException("no KMS is configured: bloomseal.spark.enable gave this application no such settings");
        } catch (GeneralSecurityException e) {
            throw new ParquetCryptoRuntimeException("this Java has no SHA-256");
        }
    }

    /** parquet-java logs every pushed filter with its values, at INFO: what is asked of a sealed column would stand in executor logs. */
    private static void hush() {
        try {
            Configurator.setLevel("org.apache.parquet.filter2.compat.FilterCompat", Level.WARN);
        } catch (LinkageError e) {
            LoggerFactory.getLogger(KeyBridge.class).warn("this is not Log4j 2: set FilterCompat of parquet-java to WARN yourself");
        }
    }

    public String wrapKey(byte[] key, String masterKey) throws KeyAccessDeniedException {
        return ask("wrap", masterKey, "key", Base64.getEncoder().encodeToString(key), "wrapped");
    }

    public byte[] unwrapKey(String wrapped, String masterKey) throws KeyAccessDeniedException {
        return Base64.getDecoder().decode(ask("unwrap", masterKey, "wrapped", wrapped, "key"));
    }

    /** The bridge of a session, by its configuration; one for each settings that the application was given. */
    static KeyBridge of(Configuration conf) {
        String token = conf.getTrimmed("parquet.encryption.key.access.token", "");
        KeyBridge bridge = (KeyBridge) BRIDGES.get(token);
        if (bridge == null) {
            bridge = new KeyBridge();
            bridge.initialize(conf, null, null, token);
            BRIDGES.put(token, bridge);
        }
        return bridge;
    }

    /** A name out of a file, for messages and logs: quoted, of bounded length, and safe to show. */
    static String shown(String name) {
        return "'" + safe(name.length() <= LONGEST_NAME ? name : name.substring(0, LONGEST_NAME - 3) + "...", LONGEST_NAME) + "'";
    }

    /** As safe_text in bloomseal/_text.py: nothing that forges a line of a log, passes for another name or steers a terminal. */
    private static String safe(String text, int longest) {
        StringBuilder shown = new StringBuilder();
        int length = Math.min(text.length(), longest);
        for (int at = 0; at < length;) {
            int code = text.codePointAt(at);
            at += Character.charCount(code);
            if (code == ' ' || isPrintable(Character.getType(code))) {
                shown.appendCodePoint(code);
            } else {
                shown.append(String.format(code < 0x10000 ? "\\u%04x" : "\\U%08x", new Object[] {Integer.valueOf(code)}));
            }
        }
        return length < text.length() ? shown + " ..." : shown.toString();
    }

    private static boolean isPrintable(int type) {
        return type != Character.CONTROL && type != Character.FORMAT && type != Character.SURROGATE && type != Character.PRIVATE_USE
                && type != Character.UNASSIGNED && type != Character.LINE_SEPARATOR && type != Character.PARAGRAPH_SEPARATOR
                && type != Character.SPACE_SEPARATOR;
    }

    /** Has the helper write an entry of the access log; {@code why} where the key was refused. */
    void log(String action, String file, String column, byte[] keyMetadata, String why) {
        JsonNode answer;
        try {
            ObjectNode request = (ObjectNode) JSON.readTree(settings);
            request.put("op", "log");
            request.put("action", action);
            request.put("file", file);
            request.put("column", column);
            request.put("key_metadata", Base64.getEncoder().encodeToString(keyMetadata == null ? new byte[0] : keyMetadata));
            request.put("refused", why);
            answer = JSON.readTree((String) helper(python).apply(new Object[] {request.toString(), Long.valueOf(millis)}));
        } catch (IOException e) {
            throw new ParquetCryptoRuntimeException("the key helper's answer is not JSON");
        } catch (IllegalStateException e) {
            throw new ParquetCryptoRuntimeException("no key without its entry in the access log: " + e.getMessage());
        }
        if (!answer.hasNonNull("logged")) {
            throw new ParquetCryptoRuntimeException(reason(answer) + " [unusable]");
        }
    }

    private static String reason(JsonNode answer) {
        return answer.hasNonNull("message") ? safe(answer.get("message").asText(), LONGEST_MESSAGE) : "the key helper gave no reason";
    }

    private String ask(String op, String masterKey, String name, String value, String wanted) throws KeyAccessDeniedException {
        long began = System.nanoTime();
        String problem = "bridge.failures";
        try {
            String found = answered(op, masterKey, name, value, wanted);
            problem = null;
            return found;
        } catch (KeyAccessDeniedException e) {
            problem = "bridge.denials";
            throw e;
        } finally {
            Measures.asked(problem, System.nanoTime() - began);
        }
    }

    private String answered(String op, String masterKey, String name, String value, String wanted) throws KeyAccessDeniedException {
        JsonNode answer;
        try {
            ObjectNode request = (ObjectNode) JSON.readTree(settings);
            request.put("op", op);
            request.put("master_key", masterKey);
            request.put(name, value);
            answer = JSON.readTree((String) helper(python).apply(new Object[] {request.toString(), Long.valueOf(millis)}));
        } catch (IOException e) {
            // Without the cause: Jackson quotes what it was reading.
            throw new ParquetCryptoRuntimeException("the key helper's answer is not JSON");
        } catch (IllegalStateException e) {
            throw new ParquetCryptoRuntimeException("master key " + shown(masterKey) + ": " + e.getMessage());
        }
        if (answer.hasNonNull(wanted)) {
            return answer.get(wanted).textValue();
        }
        String problem = answer.hasNonNull("problem") ? answer.get("problem").asText() : "invalid";
        String message = reason(answer) + " [" + problem + "]";
        if (problem.equals("denied")) {
            // What parquet-java takes for a column that this user may not see.
            throw new KeyAccessDeniedException(message);
        }
        throw new ParquetCryptoRuntimeException(message);
    }

    /**
     * This JVM's helper for an interpreter. Spark loads this class once for every session's class loader, so the helper is handed from
     * one copy to the next by the only thing that they share, as a type that all of them know.
     */
    private static Function helper(String python) {
        Properties shared = System.getProperties();
        String name = "bloomseal.helper.1 " + python;
        synchronized (shared) {
            Function helper = (Function) shared.get(name);
            if (helper == null) {
                helper = new Helper(python);
                shared.put(name, helper);
            }
            return helper;
        }
    }

    /** Keeps a helper process running: started on the first request, again after it died, ended with the JVM. */
    private static final class Helper implements Function {
        private final String python;
        private Conversation current;

        Helper(String python) {
            this.python = python;
        }

        /** {request without its id, milliseconds to wait} to the answer; IllegalStateException with the reason if there is none. */
        public Object apply(Object argument) {
            String request = (String) ((Object[]) argument)[0];
            long millis = ((Long) ((Object[]) argument)[1]).longValue();
            IOException failure = null;
            // Wrapping and unwrapping may be repeated, so one that was cut off by the helper's end is asked again.
            for (int attempt = 0; attempt < 2; attempt++) {
                try {
                    return conversation().ask(request, millis);
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
    }

    /** One helper process, from its start to its end. Many tasks talk with it at the same time. */
    private static final class Conversation implements Runnable {
        private static final Logger LOG = LoggerFactory.getLogger("bloomseal.spark.KeyHelper");

        volatile boolean ended;
        private volatile boolean greeted;
        private volatile String lastWords = "";
        private final String python;
        private final Process process;
        private final OutputStream requests;
        private final Map waiting = new ConcurrentHashMap();
        private final AtomicLong ids = new AtomicLong();
        private final Thread hook;
        private final Thread remarks;

        Conversation(String python) throws IOException {
            this.python = python;
            List command = new ArrayList();
            command.add(python);
            command.add("-P"); // what stands in the working directory must not be imported
            command.add("-m");
            command.add("bloomseal.keytools.helper");
            process = new ProcessBuilder(command).start();
            requests = process.getOutputStream();
            hook = new Thread(new Ending(this), "bloomseal key helper: end");
            try {
                Runtime.getRuntime().addShutdownHook(hook);
            } catch (IllegalStateException e) {
                process.destroyForcibly();
                throw new IOException("the JVM is shutting down");
            }
            remarks = start(new Remarks(this), "bloomseal key helper: remarks");
            start(this, "bloomseal key helper: answers");
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

        /** Hands out answers until there are no more. */
        public void run() {
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
            try {
                Runtime.getRuntime().removeShutdownHook(hook);
            } catch (IllegalStateException e) {
                return; // the JVM is ending as well
            }
            LOG.warn("the key helper has ended; it is started again when it is needed");
            Iterator left = waiting.values().iterator();
            while (left.hasNext()) {
                ((CompletableFuture) left.next()).completeExceptionally(new IOException("ended"));
            }
        }

        private static BufferedReader reader(InputStream stream) {
            return new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
        }

        private static Thread start(Runnable work, String name) {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            thread.start();
            return thread;
        }

        /** Passes the helper's standard error on to the log. */
        private static final class Remarks implements Runnable {
            private final Conversation of;

            Remarks(Conversation of) {
                this.of = of;
            }

            public void run() {
                try {
                    BufferedReader reader = reader(of.process.getErrorStream());
                    for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                        of.lastWords = safe(line, LONGEST_MESSAGE);
                        LOG.warn(of.lastWords);
                    }
                } catch (IOException e) {
                    LOG.debug("the key helper's remarks broke off");
                }
            }
        }

        /** At the JVM's end: no more requests, and no process left behind. */
        private static final class Ending implements Runnable {
            private final Conversation of;

            Ending(Conversation of) {
                this.of = of;
            }

            public void run() {
                try {
                    of.requests.close();
                    of.process.waitFor(3, TimeUnit.SECONDS);
                } catch (Exception e) {
                    LOG.debug("the key helper's input was closed already");
                }
                of.process.destroyForcibly();
            }
        }
    }
}
