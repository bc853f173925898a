package bloomseal.spark;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;

/**
 * The data keys of one file, from its key material. The KMS unwraps each key encryption key under the master key that the material names,
 * whatever id it has. A reader that caches keys by id takes somebody's own key for one under a master key that he may not use: he names
 * that master key beside his id. What is remembered, by the bridge for a minute and by the key helper, goes by master key and wrapped
 * bytes.
 *
 * Where BLOOMSEAL_ACCESS_LOG names a log, a key is handed out after its entry is written, and not at all where that fails.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class FileKeys implements DecryptionKeyRetriever {
  /** As limits.py and keytools/material/store.py have it. */
  private static final int LONGEST_MATERIAL = 64 * 1024;
  private static final int LONGEST_STORE = 64 * 1024 * 1024;

  /** Strict, so that nobody's check reads other words in a text than this does. */
  private static final ObjectMapper JSON = new ObjectMapper()
      .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
      .enable(DeserializationFeature.FAIL_ON_READING_DUP_TREE_KEY);

  private final Configuration configuration;
  private final Path file;
  private final TablePlaces place;
  private JsonNode beside;
  /** The one that the last key was had under. */
  String masterKey;

  /** @param place the file's, whose table's master keys are the only ones; null where no place matters */
  FileKeys(Configuration configuration, Path file, TablePlaces place) {
    this.configuration = configuration;
    this.file = file;
    this.place = place;
  }

  /** Key metadata that Spark's options led to, with the name of the master key as it is. */
  static byte[] named(byte[] keyMetadata, TablePlaces place) {
    JsonNode metadata = parsed(keyMetadata);
    if (!flag(metadata, "internalStorage")) {
      return keyMetadata;
    }
    String name = text(metadata, "masterKeyID");
    String plain = KeyBridge.plainName(name);
    if (place != null) {
      place.check(plain);
    }
    return plain.equals(name) ? keyMetadata
        : ((ObjectNode) metadata).put("masterKeyID", plain).toString().getBytes(StandardCharsets.UTF_8);
  }

  /** Whether a key is wrapped under this master key; of material beside the file only its reference is known. */
  static boolean isUnder(byte[] keyMetadata, String masterKey) {
    JsonNode metadata = parsed(keyMetadata);
    return !flag(metadata, "internalStorage") || text(metadata, "masterKeyID").equals(masterKey);
  }

  public synchronized byte[] getKey(byte[] keyMetadata) throws ParquetCryptoRuntimeException {
    Guard.checkRead(configuration, file, true);
    byte[] key;
    try {
      key = key(material(keyMetadata));
    } catch (ParquetCryptoRuntimeException e) {
      try {
        tell(keyMetadata, why(e));
      } catch (ParquetCryptoRuntimeException unlogged) {
        unlogged.addSuppressed(e);
        throw unlogged;
      }
      throw e;
    }
    tell(keyMetadata, null);
    return key;
  }

  private void tell(byte[] keyMetadata, String why) {
    if (logged()) {
      byte[] told = keyMetadata != null && keyMetadata.length <= LONGEST_MATERIAL ? keyMetadata : null;
      KeyBridge.of(configuration).log("open", name(file), null, told, why);
    }
  }

  static boolean logged() {
    String log = System.getenv("BLOOMSEAL_ACCESS_LOG");
    return log != null && !log.isEmpty();
  }

  /** As Bloomseal calls it: the path of a local file, the address of another. */
  static String name(Path file) {
    URI place = file.toUri();
    boolean local = place.getScheme() == null || place.getScheme().equals("file");
    return local ? place.getPath() : file.toString();
  }

  /** The key helper's own words and ours, which end with the kind of the problem; of others the kind alone: they may quote. */
  private static String why(ParquetCryptoRuntimeException e) {
    String message = e.getMessage();
    boolean ours = message != null && message.length() < 1000 && message.matches("(?s).* \\[[a-z]+\\]");
    return ours ? message : e.getClass().getSimpleName();
  }

  private byte[] key(JsonNode material) {
    KeyBridge bridge = KeyBridge.of(configuration);
    String masterKey = text(material, "masterKeyID");
    if (place != null) {
      place.check(masterKey);
    }
    String wrapped = text(material, "wrappedDEK");
    byte[] key;
    if (flag(material, "doubleWrapping")) {
      byte[] kek = bridge.unwrapKey(text(material, "wrappedKEK"), masterKey);
      try {
        key = KeyToolkit.decryptKeyLocally(wrapped, kek, Base64.getDecoder().decode(text(material, "keyEncryptionKeyID")));
      } catch (RuntimeException e) {
        // Without the cause: what the decoder of base64 says quotes what it was given.
        throw bad("the file's wrapped data key under master key " + KeyBridge.shown(masterKey)
            + " does not open: another key wrapped it, or it was altered");
      }
    } else {
      key = bridge.unwrapKey(wrapped, masterKey);
    }
    if (key.length != 16 && key.length != 24 && key.length != 32) {
      throw bad("a data key of " + key.length + " bytes; AES keys have 16, 24 or 32");
    }
    this.masterKey = masterKey;
    return key;
  }

  private JsonNode material(byte[] keyMetadata) {
    if (keyMetadata == null) {
      throw bad("no key metadata");
    }
    JsonNode metadata = parsed(keyMetadata);
    if (flag(metadata, "internalStorage")) {
      return metadata;
    }
    String reference = text(metadata, "keyReference");
    if (beside == null) {
      beside = beside();
    }
    JsonNode found = beside.get(reference);
    if (found == null || !found.isTextual()) {
      throw bad("there is no key material " + KeyBridge.shown(reference) + " beside the file");
    }
    return parsed(found.textValue().getBytes(StandardCharsets.UTF_8));
  }

  private static JsonNode parsed(byte[] text) {
    if (text.length > LONGEST_MATERIAL) {
      throw bad("key material of " + text.length + " bytes; the limit is " + LONGEST_MATERIAL);
    }
    JsonNode found = json(text);
    if (!text(found, "keyMaterialType").equals("PKMT1")) {
      throw bad("key material of a type other than PKMT1");
    }
    return found;
  }

  private JsonNode beside() {
    Path store = new Path(file.getParent(), "_KEY_MATERIAL_FOR_" + file.getName() + ".json");
    try {
      byte[] text = read(configuration, store, LONGEST_STORE);
      if (text.length == 0) {
        throw bad("a key material store of no bytes, or of more than " + LONGEST_STORE);
      }
      return json(text);
    } catch (IOException e) {
      throw bad("the key material beside the file can't be read (" + e.getClass().getSimpleName() + ")");
    }
  }

  /** A small file; nothing where it is longer. */
  static byte[] read(Configuration configuration, Path place, int longest) throws IOException {
    FileSystem files = place.getFileSystem(configuration);
    long length = files.getFileStatus(place).getLen();
    byte[] text = new byte[length > longest ? 0 : (int) length];
    if (text.length > 0) { // a pipe has no length, and would be waited for
      FSDataInputStream stream = files.open(place);
      try {
        stream.readFully(0, text);
      } finally {
        stream.close();
      }
    }
    return text;
  }

  private static JsonNode json(byte[] text) {
    try {
      // Decoded here: the parser would take other encodings, too.
      JsonNode found = JSON.readTree(new String(text, StandardCharsets.UTF_8));
      if (found != null && found.isObject()) {
        return found;
      }
    } catch (IOException e) {
      // Told below, without the cause, which quotes.
    }
    throw bad("key material that is not a JSON object; a key given by id can't be found here");
  }

  private static String text(JsonNode fields, String name) {
    JsonNode found = fields.get(name);
    if (found == null || !found.isTextual()) {
      throw bad("key material without " + name);
    }
    return found.textValue();
  }

  private static boolean flag(JsonNode fields, String name) {
    JsonNode found = fields.get(name);
    if (found == null || !found.isBoolean()) {
      throw bad("key material without " + name);
    }
    return found.booleanValue();
  }

  private static ParquetCryptoRuntimeException bad(String what) {
    return new ParquetCryptoRuntimeException(what + " [invalid]");
  }
}
