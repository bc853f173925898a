package bloomseal.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;

/**
 * parquet-java's own encryption by properties, but that no Parquet file is begun which it would leave in plaintext: an
 * INSERT into a catalog's table without options, a misspelt one, a plain write.
 */
public final class SealedOnly extends Logged {
  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration configuration, Path file, WriteContext context) throws ParquetCryptoRuntimeException {
    FileEncryptionProperties found = super.getFileEncryptionProperties(configuration, file, context);
    if (found == null) {
      throw new ParquetCryptoRuntimeException(
          "bloomseal.errors.PolicyError: no key is named for this write, and the session refuses plaintext: "
              + "bloomseal.spark.protect_table for a table of the catalog, bloomseal.spark.write otherwise (" + file + ")");
    }
    return found;
  }
}
