package bloomseal.spark;

import java.net.URI;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;

/**
 * parquet-java's own encryption by properties, with an entry in the access log for each key of each file, where
 * BLOOMSEAL_ACCESS_LOG names one. A key is handed out after its entry is written, and not at all where that fails.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public class Logged extends PropertiesDrivenCryptoFactory {
  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration configuration, Path file, WriteContext context) throws ParquetCryptoRuntimeException {
    FileEncryptionProperties found = super.getFileEncryptionProperties(configuration, file, context);
    if (found == null || !on()) {
      return found;
    }
    KeyBridge bridge = KeyBridge.of(configuration);
    bridge.log("seal", name(file), null, found.getFooterKeyMetadata(), null);
    Map columns = found.getEncryptedColumns();
    Iterator each = columns == null ? null : columns.values().iterator();
    while (each != null && each.hasNext()) {
      ColumnEncryptionProperties column = (ColumnEncryptionProperties) each.next();
      if (column.isEncrypted() && !column.isEncryptedWithFooterKey()) {
        bridge.log("seal", name(file), column.getPath().toDotString(), column.getKeyMetaData(), null);
      }
    }
    return found;
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration configuration, Path file)
      throws ParquetCryptoRuntimeException {
    FileDecryptionProperties found = super.getFileDecryptionProperties(configuration, file);
    if (found == null || !on()) {
      return found;
    }
    Told told = new Told(found.getKeyRetriever(), configuration, name(file));
    return FileDecryptionProperties.builder().withKeyRetriever(told).withPlaintextFilesAllowed().build();
  }

  private static boolean on() {
    String log = System.getenv("BLOOMSEAL_ACCESS_LOG");
    return log != null && !log.isEmpty();
  }

  /** As Bloomseal calls it: the path of a local file, the address of another. */
  private static String name(Path file) {
    URI place = file.toUri();
    boolean local = place.getScheme() == null || place.getScheme().equals("file");
    return local ? place.getPath() : file.toString();
  }

  /** Asks for a file's keys, and tells of each. */
  private static final class Told implements DecryptionKeyRetriever {
    private final DecryptionKeyRetriever keys;
    private final Configuration configuration;
    private final String file;

    Told(DecryptionKeyRetriever keys, Configuration configuration, String file) {
      this.keys = keys;
      this.configuration = configuration;
      this.file = file;
    }

    public byte[] getKey(byte[] keyMetadata) throws ParquetCryptoRuntimeException {
      byte[] key;
      try {
        key = keys.getKey(keyMetadata);
      } catch (ParquetCryptoRuntimeException e) {
        try {
          KeyBridge.of(configuration).log("open", file, null, keyMetadata, why(e));
        } catch (ParquetCryptoRuntimeException unlogged) {
          unlogged.addSuppressed(e);
          throw unlogged;
        }
        throw e;
      }
      KeyBridge.of(configuration).log("open", file, null, keyMetadata, null);
      return key;
    }

    /** The key helper's own words, which end with the kind of the problem; of others the kind alone: they may quote. */
    private static String why(ParquetCryptoRuntimeException e) {
      String message = e.getMessage();
      boolean ours = message != null && message.length() < 1000 && message.matches("(?s).* \\[[a-z]+\\]");
      return ours ? message : e.getClass().getSimpleName();
    }
  }
}
