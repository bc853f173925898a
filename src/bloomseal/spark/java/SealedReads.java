package bloomseal.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** TableCrypto for reads that take sealed files only, wherever they lie. */
public final class SealedReads extends TableCrypto {
  @Override
  boolean sealedOnly(Configuration conf, Path file) {
    return true;
  }
}
