package bloomseal.spark;

import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;

/**
 * parquet-java's own encryption by properties, with an entry in the access log for each key of each file, where
 * BLOOMSEAL_ACCESS_LOG names one. A key is handed out after its entry is written, and not at all where that fails. Keys to read
 * with come from FileKeys.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public class Logged extends PropertiesDrivenCryptoFactory {
  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration configuration, Path file, WriteContext context) throws ParquetCryptoRuntimeException {
    FileEncryptionProperties found = super.getFileEncryptionProperties(configuration, file, context);
    if (found == null) {
      Guard.checkPlain(configuration, file);
    }
    if (found == null || !FileKeys.logged()) {
      return found;
    }
    KeyBridge bridge = KeyBridge.of(configuration);
    String name = FileKeys.name(file);
    bridge.log("seal", name, null, found.getFooterKeyMetadata(), null);
    Map columns = found.getEncryptedColumns();
    Iterator each = columns == null ? null : columns.values().iterator();
    while (each != null && each.hasNext()) {
      ColumnEncryptionProperties column = (ColumnEncryptionProperties) each.next();
      if (column.isEncrypted() && !column.isEncryptedWithFooterKey()) {
        bridge.log("seal", name, column.getPath().toDotString(), column.getKeyMetaData(), null);
      }
    }
    return found;
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration configuration, Path file)
      throws ParquetCryptoRuntimeException {
    Guard.checkRead(configuration, file, false);
    return FileDecryptionProperties.builder().withKeyRetriever(new FileKeys(configuration, file)).withPlaintextFilesAllowed().build();
  }
}
