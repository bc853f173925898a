package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;

/**
 * Where an application must not write in plaintext, as enable was told: everywhere, or below some folders; and wherever
 * sealed files lie. Spark says nothing of options that are missing, misspelt, or lost on their way to the writer. And how
 * it must not read them.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class Guard {
  /** Options that leave something in clear, or unauthenticated, beside keys: in a table's folder they are the policy's. */
  private static final List LEAKING = Arrays.asList(
      new String[] {"parquet.encryption.algorithm", "parquet.summary.metadata.level", "parquet.writer.version"});
  private static final String UNKEYED = "no key is named for this write, and sealed files are wanted here: "
      + "bloomseal.spark.protect_table for a table of the catalog, bloomseal.spark.write otherwise";

  private Guard() {}

  /**
   * Before a job writes its first file: one into a table's folder gets the table's options where it names no keys, and one that
   * would leave plaintext where sealed files are wanted is refused.
   */
  static void check(Configuration conf, Path place, boolean stream) throws IOException {
    JsonNode given = KeyBridge.given(conf);
    if (given == null) {
      return;
    }
    JsonNode known = KeyBridge.application();
    if (known != null && isIn(known, "sealed", conf, place) && !isIn(given, "sealed", conf, place)) {
      throw TablePlaces.refused("bloomseal.spark.enable names this folder in other settings than those of this write: call it in this session, too",
          place);
    }
    boolean parquet = conf.get("parquet.write.support.class") != null;
    boolean keys = names(conf, "parquet.encryption.footer.key", "parquet.encryption.uniform.key");
    if (isPlain(given, conf, place)) {
      return;
    }
    JsonNode table = parquet ? TablePlaces.told(conf, given, place) : null;
    for (Iterator each = table == null ? null : table.get("options").fields(); each != null && each.hasNext();) {
      Map.Entry option = (Map.Entry) each.next();
      if (!keys || LEAKING.contains(option.getKey())) {
        conf.set((String) option.getKey(), ((JsonNode) option.getValue()).textValue());
      }
    }
    if (keys ? parquet && "bloomseal.spark.TableCrypto".equals(conf.get("parquet.crypto.factory.class")) : table != null) {
      return;
    }
    if (keys) {
      throw TablePlaces.refused("keys are named for this write, but only Parquet files are sealed", place);
    }
    if (stream && parquet && !given.get("streams").asBoolean()) {
      throw TablePlaces.refused("Spark before 4.2 loses the options of a stream on their way to its file sink, "
          + "and would write plaintext: bloomseal.spark.write_stream, or foreachBatch", place);
    }
    if (wanted(given, conf, place) || holdsSealed(conf, place)) {
      throw TablePlaces.refused(UNKEYED, place);
    }
  }

  /** Before a job replaces a folder: one above a table would take the table with it. */
  static void checkReplaced(Configuration conf, Path place) {
    JsonNode given = KeyBridge.given(conf);
    for (Object each : given == null ? Collections.emptyList() : (Iterable) given.get("sealed")) {
      Path folder = new Path(((JsonNode) each).textValue());
      if (TablePlaces.below(conf, folder, place) != null && TablePlaces.below(conf, place, folder) == null) {
        throw TablePlaces.refused("an overwrite of this folder would remove the table in " + folder, place);
      }
    }
  }

  /** Whatever begins the file: an RDD too, or a commit protocol of somebody else's. */
  static void checkPlain(Configuration conf, Path file) {
    JsonNode given = KeyBridge.given(conf);
    if (given != null && wanted(given, conf, file) && !isPlain(given, conf, file)) {
      throw TablePlaces.refused(UNKEYED, file);
    }
  }

  /**
   * Before a file is read: a read that skips what it can't open would take a refusal for no rows.
   *
   * @param sealed known to be so; else told by the file, those beside it, and what enable was told of places.
   */
  static void checkRead(Configuration conf, Path file, boolean sealed) {
    if (!skips(conf)) {
      return;
    }
    boolean wanted = sealed;
    try {
      wanted = sealed || isBesideSealed(conf, file)
          || (KeyBridge.given(conf) != null && wanted(KeyBridge.given(conf), conf, file));
    } catch (RuntimeException e) {
      wanted = true;
    }
    if (wanted) {
      throw new SkippedError("spark.sql.files.ignoreCorruptFiles would leave out, without a word, the rows of sealed files that "
          + "don't open: set it to false, or the reader's option ignoreCorruptFiles (" + file + ")");
    }
  }

  private static boolean skips(Configuration conf) {
    String option = conf.get("ignoreCorruptFiles", conf.get("ignorecorruptfiles"));
    return Boolean.parseBoolean(option != null ? option.trim() : conf.get("spark.sql.files.ignoreCorruptFiles", "false"));
  }

  /** Of what a reader throws, Spark skips the exceptions, and this is none. */
  static final class SkippedError extends Error {
    SkippedError(String why) {
      super("bloomseal.PolicyError: " + why);
    }
  }

  static boolean names(Configuration conf, String one, String other) {
    return !conf.get(one, "").isEmpty() || !conf.get(other, "").isEmpty();
  }

  /** Whether a file lies below the folder of a table, as enable was told, and where no plaintext is allowed. */
  static boolean isInTable(Configuration conf, Path file) {
    JsonNode given = KeyBridge.given(conf);
    return given != null && TablePlaces.told(conf, given, file) != null && !isPlain(given, conf, file);
  }

  /** Whether plaintext is allowed: a table with signers has no such place. */
  private static boolean isPlain(JsonNode given, Configuration conf, Path place) {
    return isIn(given, "plain", conf, place) && !TablePlaces.isSigned(TablePlaces.told(conf, given, place));
  }

  private static boolean wanted(JsonNode given, Configuration conf, Path place) {
    return given.get("everywhere").asBoolean() || isIn(given, "sealed", conf, place);
  }

  private static boolean isIn(JsonNode given, String name, Configuration conf, Path place) {
    for (Object each : given.get(name)) {
      Path folder = new Path(((JsonNode) each).textValue());
      // Where plaintext is allowed is where it comes to lie; a link there leads out.
      boolean plain = name.equals("plain");
      if ((plain ? TablePlaces.below(conf, place, folder, true) : TablePlaces.below(conf, place, folder)) != null) {
        return true;
      }
    }
    return false;
  }

  /** By the first data file that is found: a table that is sealed in parts only is found by bloomseal.spark.check_table. */
  static boolean holdsSealed(Configuration conf, Path place) throws IOException {
    FileSystem files = place.getFileSystem(conf);
    FileStatus first = files.exists(place) ? first(files, place) : null;
    return first != null && isSealed(conf, first);
  }

  /** A damaged file may not say what it was; those beside it do. */
  private static boolean isBesideSealed(Configuration conf, Path file) {
    try {
      FileSystem files = file.getFileSystem(conf);
      List beside = new ArrayList(Arrays.asList(files.listStatus(file.getParent())));
      beside.add(0, files.getFileStatus(file));
      for (int i = 0; i < beside.size(); i++) {
        FileStatus one = (FileStatus) beside.get(i);
        try {
          if (isData(one)) {
            return isSealed(conf, one);
          }
        } catch (Exception e) {
          continue;
        }
      }
      return false;
    } catch (IOException e) {
      return false; // what is gone is not corrupt
    }
  }

  private static boolean isSealed(Configuration conf, FileStatus file) throws IOException {
    FSDataInputStream opened = file.getPath().getFileSystem(conf).open(file.getPath());
    try {
      // The end may be what was damaged.
      if (magic(opened, 0).equals("PARE") || magic(opened, file.getLen() - 4).equals("PARE")) {
        return true;
      }
    } finally {
      opened.close();
    }
    ParquetFileReader reader =
        new ParquetFileReader(HadoopInputFile.fromStatus(file, conf), ParquetReadOptions.builder().build());
    try {
      return reader.getFileMetaData().getEncryptionType() != FileMetaData.EncryptionType.UNENCRYPTED;
    } finally {
      reader.close();
    }
  }

  private static String magic(FSDataInputStream opened, long place) throws IOException {
    byte[] found = new byte[4];
    opened.readFully(place, found);
    return new String(found, "ISO-8859-1");
  }

  static boolean isHidden(Path file) {
    String name = file.getName();
    return name.startsWith(".") || (name.startsWith("_") && name.indexOf('=') < 0);
  }

  private static boolean isData(FileStatus file) {
    return file.isFile() && !isHidden(file.getPath()) && file.getPath().getName().endsWith(".parquet") && file.getLen() > 11;
  }

  private static FileStatus first(FileSystem files, Path folder) throws IOException {
    FileStatus[] found = files.listStatus(folder);
    for (int i = 0; i < found.length; i++) {
      FileStatus below = isHidden(found[i].getPath()) || !found[i].isDirectory() ? null : first(files, found[i].getPath());
      if (isData(found[i]) || below != null) {
        return below == null ? found[i] : below;
      }
    }
    return null;
  }
}
