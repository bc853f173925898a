package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KmsClient;
import org.apache.spark.SparkFiles;
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
  static final ObjectMapper JSON = new ObjectMapper();
  private static final Map BRIDGES = new ConcurrentHashMap();
  /** What enable was given, by its digest: as immutable as that. */
  private static final Map GIVEN = new ConcurrentHashMap();
  /** How Spark's options spell a name with one of : ; , in it. */
  private static final Pattern SPELT = Pattern.compile("bloomseal\\.name\\.([A-Za-z0-9_-]+)");
  private static final int LONGEST_NAME = 200;

  /** Unwrapped keys are all forgotten after a minute, or after the lifetime that was given if it is shorter. */
  private static final int KEPT_SECONDS = 60;
  private static final int KEPT_KEYS = 10000;

  /** By master key and wrapped bytes, which prove a key; an id that a file claims proves none. */
  private final Map kept = new HashMap();
  private long since;
  private long keptNanos;
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
    keptNanos = 1000000000L * Math.min(KEPT_SECONDS, given.get("lifetime").asInt());
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
    JsonNode known = (JsonNode) GIVEN.get(token);
    if (known != null) {
      return known;
    }
    String digest = token.substring("bloomseal:".length());
    try {
      byte[] text = Files.readAllBytes(new File(SparkFiles.get("bloomseal-" + digest + ".json")).toPath());
      if (!String.format("%064x", new Object[] {new BigInteger(1, sha256(text))}).equals(digest)) {
        throw new ParquetCryptoRuntimeException("the settings of bloomseal.spark.enable have changed on their way to this machine");
      }
      known = JSON.readTree(text);
      GIVEN.put(token, known);
      return known;
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("no KMS is configured: bloomseal.spark.enable gave this application no such settings");
    }
  }

  /** As above, of a session's configuration; null where enable was not called. */
  static JsonNode given(Configuration conf) {
    String token = conf.get("parquet.encryption.key.access.token");
    return token == null ? null : given(token);
  }

  /** The folders that the newest settings of any session name, on the driver; null elsewhere. */
  static JsonNode application() throws IOException {
    String text = System.getProperty("bloomseal.sealed");
    return text == null ? null : JSON.readTree(text);
  }

  static byte[] sha256(byte[] text) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(text);
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
    return ask("wrap", plainName(masterKey), "key", Base64.getEncoder().encodeToString(key), "wrapped");
  }

  public byte[] unwrapKey(String wrapped, String masterKey) throws KeyAccessDeniedException {
    String asked = masterKey.length() + ":" + masterKey + wrapped;
    ByteBuffer name = ByteBuffer.wrap(sha256(asked.getBytes(StandardCharsets.UTF_8)));
    long now = System.nanoTime();
    byte[] key;
    synchronized (kept) {
      if (now - since >= keptNanos || kept.size() >= KEPT_KEYS) {
        kept.clear();
        since = now;
      }
      key = (byte[]) kept.get(name);
    }
    if (key == null) {
      key = Base64.getDecoder().decode(ask("unwrap", masterKey, "wrapped", wrapped, "key"));
      synchronized (kept) {
        if (now - since >= 0 && now - since < keptNanos) { // not one of before the last time that all were forgotten
          kept.put(name, key);
        }
      }
    }
    return (byte[]) key.clone();
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

  /** A key's or a column's name, out of Spark's options. */
  static String plainName(String name) {
    Matcher spelt = SPELT.matcher(name);
    return spelt.matches() ? new String(Base64.getUrlDecoder().decode(spelt.group(1)), StandardCharsets.UTF_8) : name;
  }

  /** A name out of a file, for messages and logs: quoted, of bounded length, and safe to show. */
  static String shown(String name) {
    return "'" + KeyHelper.safe(name.length() <= LONGEST_NAME ? name : name.substring(0, LONGEST_NAME - 3) + "...") + "'";
  }

  /** Has the helper write an entry of the access log; {@code why} where the key was refused. */
  void log(String action, String file, String column, byte[] keyMetadata, String why) {
    String metadata = Base64.getEncoder().encodeToString(keyMetadata == null ? new byte[0] : keyMetadata);
    JsonNode answer = answer("no key without its entry in the access log", new String[] {
        "op", "log", "action", action, "file", file, "column", column, "key_metadata", metadata, "refused", why});
    if (!answer.hasNonNull("logged")) {
      throw new ParquetCryptoRuntimeException(reason(answer) + " [unusable]");
    }
  }

  private String ask(String op, String masterKey, String name, String value, String wanted) throws KeyAccessDeniedException {
    JsonNode answer =
        answer("master key " + shown(masterKey), new String[] {"op", op, "master_key", masterKey, name, value});
    return told(answer, wanted);
  }

  /** What the helper was asked for. */
  static String told(JsonNode answer, String wanted) throws KeyAccessDeniedException {
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

  /** The helper's answer to a request with these fields, each name before its value. */
  JsonNode answer(String about, String[] fields) {
    try {
      ObjectNode request = (ObjectNode) JSON.readTree(settings);
      for (int i = 0; i < fields.length; i += 2) {
        request.put(fields[i], fields[i + 1]);
      }
      return JSON.readTree((String) helper(python).apply(new Object[] {request.toString(), Long.valueOf(millis)}));
    } catch (IOException e) {
      // Without the cause: Jackson quotes what it was reading.
      throw new ParquetCryptoRuntimeException("the key helper's answer is not JSON");
    } catch (IllegalStateException e) {
      throw new ParquetCryptoRuntimeException(about + ": " + e.getMessage());
    }
  }

  private static String reason(JsonNode answer) {
    return answer.hasNonNull("message") ? KeyHelper.safe(answer.get("message").asText()) : "the key helper gave no reason";
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
        helper = new KeyHelper(python);
        shared.put(name, helper);
      }
      return helper;
    }
  }
}
