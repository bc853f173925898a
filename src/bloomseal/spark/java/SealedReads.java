package bloomseal.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/**
 * parquet-java's own encryption by properties, for reads that take sealed files only: one in plaintext, put in the
 * place of another while a query runs, ends it.
 */
public final class SealedReads extends Logged {
  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration configuration, Path file)
      throws ParquetCryptoRuntimeException {
    Guard.checkRead(configuration, file, true);
    return FileDecryptionProperties.builder().withKeyRetriever(new FileKeys(configuration, file)).build();
  }
}
