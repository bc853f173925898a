package bloomseal.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory;
import org.apache.parquet.hadoop.api.WriteSupport.WriteContext;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.spark.TaskContext;

/**
 * parquet-java's own encryption by properties, and what properties can't say: each file is sealed for its place in a table
 * of the policy and opens in that place only (TablePlaces), plaintext is refused below a table's folder, names of keys and
 * columns may hold any character, and each key of each file gets an entry in the access log, where BLOOMSEAL_ACCESS_LOG
 * names one. A key is handed out after its entry is written, and not at all where that fails. Keys to read with come from
 * FileKeys.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class TableCrypto extends PropertiesDrivenCryptoFactory {
  /** What Spark reads of a file; not set where its schema alone is wanted. */
  private static final String COLUMNS = "org.apache.spark.sql.parquet.row.requested_schema";
  /** The file that a task asked for last, and what was seen of it: it asks several times in a row. */
  private static final ThreadLocal LAST = new ThreadLocal();

  @Override
  public FileEncryptionProperties getFileEncryptionProperties(
      Configuration conf, Path file, WriteContext context) throws ParquetCryptoRuntimeException {
    TablePlaces place = Guard.names(conf, "parquet.encryption.footer.key", "parquet.encryption.uniform.key")
        ? TablePlaces.ofWrite(conf, file) : null;
    FileEncryptionProperties found = super.getFileEncryptionProperties(conf, file, context);
    if (found == null) {
      Guard.checkPlain(conf, file);
      return null;
    }
    found = bound(conf, place, found);
    refuseLookalikes(found, context.getSchema().getPaths());
    if (place != null) {
      checkSealed(place, found, context.getSchema().getPaths(), conf.getBoolean("parquet.encryption.complete.columns", false));
    }
    if (place != null && place.signers() != null) {
      SignedTail.begin(conf, file, found.getFooterKey());
    }
    if (FileKeys.logged()) {
      log(KeyBridge.of(conf), FileKeys.name(place == null ? file : place.file), found);
    }
    return found;
  }

  /** The same keys, under their own names, and the prefix of the file's place. */
  private static FileEncryptionProperties bound(Configuration conf, TablePlaces place, FileEncryptionProperties found) {
    FileEncryptionProperties.Builder builder = FileEncryptionProperties.builder(found.getFooterKey())
        .withFooterKeyMetadata(FileKeys.named(found.getFooterKeyMetadata(), place))
        .withAlgorithm(ParquetCipher.valueOf(conf.getTrimmed("parquet.encryption.algorithm", "AES_GCM_V1")));
    if (!found.encryptedFooter()) {
      builder.withPlaintextFooter();
    }
    if (found.getEncryptedColumns() != null) {
      Map columns = new HashMap();
      for (Object each : found.getEncryptedColumns().values()) {
        ColumnEncryptionProperties column = (ColumnEncryptionProperties) each;
        ColumnPath path = ColumnPath.fromDotString(KeyBridge.plainName(column.getPath().toDotString()));
        columns.put(path, ColumnEncryptionProperties.builder(path, true).withKey(column.getKeyBytes())
            .withKeyMetaData(FileKeys.named(column.getKeyMetaData(), place)).build());
      }
      builder.withEncryptedColumns(columns);
      if (conf.getBoolean("parquet.encryption.complete.columns", false)) {
        builder.withCompleteColumnEncryption();
      }
    }
    byte[] prefix = place == null ? null : place.prefix();
    if (prefix != null) {
      builder.withAADPrefix(prefix);
      if (!place.storesPrefix()) {
        builder.withoutAADPrefixStorage();
      }
    }
    return builder.build();
  }

  /** A policy knows columns by their exact names: an SSN beside a keyed ssn may hold the same. */
  private static void refuseLookalikes(FileEncryptionProperties found, List paths) {
    Map keyed = found.getEncryptedColumns();
    for (Iterator each = keyed == null ? null : keyed.keySet().iterator(); each != null && each.hasNext();) {
      ColumnPath column = (ColumnPath) each.next();
      for (int i = 0; i < paths.size(); i++) {
        ColumnPath other = ColumnPath.get((String[]) paths.get(i));
        if (!other.equals(column) && other.toDotString().equalsIgnoreCase(column.toDotString())) {
          throw new ParquetCryptoRuntimeException("bloomseal.PolicyError: the name of a column differs from that of "
              + KeyBridge.shown(column.toDotString()) + ", which has a key, in case alone");
        }
      }
    }
  }

  /**
   * Refuses a file in which less would be sealed than the policy wants, whatever options say: whoever sets those, of a
   * catalog's table too, chooses neither what is in clear nor under which key it is.
   */
  private static void checkSealed(TablePlaces place, FileEncryptionProperties found, List paths, boolean complete) {
    Map sealed = found.getEncryptedColumns();
    boolean all = sealed == null || sealed.isEmpty();
    if (place.seals("footer") && !found.encryptedFooter()) {
      throw TablePlaces.refused("the footer would be in clear", place.file);
    }
    if (place.seals("complete") && !all && !complete) {
      throw TablePlaces.refused("columns without a key of their own would be in clear", place.file);
    }
    for (int i = 0; i < paths.size(); i++) {
      ColumnPath path = ColumnPath.get((String[]) paths.get(i));
      String key = place.keyOf(path.toDotString());
      ColumnEncryptionProperties column = all ? null : (ColumnEncryptionProperties) sealed.get(path);
      if (key != null && (column == null || !FileKeys.isUnder(column.getKeyMetaData(), key))) {
        throw TablePlaces.refused("column " + KeyBridge.shown(path.toDotString()) + " would not be sealed as the policy of table "
            + KeyBridge.shown(place.name()) + " has it", place.file);
      }
    }
  }

  private static void log(KeyBridge bridge, String name, FileEncryptionProperties found) {
    bridge.log("seal", name, null, found.getFooterKeyMetadata(), null);
    Map columns = found.getEncryptedColumns();
    for (Iterator each = columns == null ? null : columns.values().iterator(); each != null && each.hasNext();) {
      ColumnEncryptionProperties column = (ColumnEncryptionProperties) each.next();
      bridge.log("seal", name, column.getPath().toDotString(), column.getKeyMetaData(), null);
    }
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path file)
      throws ParquetCryptoRuntimeException {
    boolean sealed = Guard.isInTable(conf, file);
    Guard.checkRead(conf, file, sealed);
    TablePlaces place = TablePlaces.of(conf, file);
    TaskContext task = TaskContext.get();
    String wanted = conf.get(COLUMNS);
    String look = task == null ? null
        : task.taskAttemptId() + " " + conf.get("parquet.encryption.key.access.token") + " " + file + " " + wanted;
    Object[] seen = (Object[]) LAST.get();
    if (look == null || seen == null || !look.equals(seen[0])) {
      SignedTail signed = place != null && place.signers() != null ? SignedTail.judged(conf, place) : null;
      // A table's schema alone is looked for by the driver without a look; by tasks, all columns count.
      if (place != null && place.pins() != null && (task != null || wanted != null)) {
        FileKeys keys = new FileKeys(conf, file, place);
        Pins.check(conf, place, keys, properties(place, keys, signed, true), wanted);
      }
      seen = new Object[] {look, signed};
      LAST.set(seen);
    }
    return properties(place, new FileKeys(conf, file, place), (SignedTail) seen[1], sealed);
  }

  /** @param signed the tail that a signer has signed: no file opens but under its footer's key; null: any may */
  private static FileDecryptionProperties properties(TablePlaces place, FileKeys keys, SignedTail signed, boolean sealed) {
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withKeyRetriever(keys);
    if (place != null && place.signers() != null) {
      builder.withFooterKey(signed.footerKey(place, keys));
    }
    byte[] prefix = place == null ? null : place.prefix();
    if (prefix != null) {
      builder.withAADPrefix(prefix);
    }
    return sealed ? builder.build() : builder.withPlaintextFilesAllowed().build();
  }
}
