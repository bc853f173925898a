package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Iterator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;

/**
 * A file's place in a table of the policy that enable was given: which table, and the file's path from the table's folder
 * on. Its AAD prefix is made of that. Options, which may be a catalog's, say nothing of it.
 *
 * A table's folder is the one that enable was told. Of tables without one it is the folder above those of partitions
 * (day=1): of the only such table, or of the one that the folder is called by.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class TablePlaces {
  /** Whether a task's files are signed when they are committed. */
  private static final String SIGNED = "bloomseal.signed.by.commit";
  /** Where Hadoop's committers have a task write, and Spark's dynamic overwrites, before the file's path below the table. */
  private static final Pattern STAGED =
      Pattern.compile("(?:\\.spark-staging-[^/]+/)?_temporary/[0-9]+/_temporary/attempt_[^/]+/(.+)", Pattern.DOTALL);

  /** Null: the policy binds files to their places, and this is in no table's. */
  private final JsonNode table;
  final String path;
  /** The policy binds the files of this table, or of another one, to their places. */
  private final boolean bound;
  final Path file;

  private TablePlaces(JsonNode given, JsonNode table, String path, Path file) {
    this.bound = isBinding(given);
    this.table = table;
    this.path = path;
    this.file = file;
  }

  /**
   * The place of a file to write, by the staging path that Spark hands over; null where no place matters.
   *
   * @throws ParquetCryptoRuntimeException the final place can't be told, or is not of the table that the options are of
   */
  static TablePlaces ofWrite(Configuration conf, Path staged) {
    boolean external = !conf.getBoolean("parquet.encryption.key.material.store.internally", true);
    String wanted = conf.get("bloomseal.table");
    boolean bound = conf.getBoolean("bloomseal.bound", false);
    boolean matters = external || bound || isBinding(KeyBridge.given(conf));
    TablePlaces found = of(conf, matters ? finalPath(conf, staged) : staged);
    if (found != null && found.table == null) {
      throw found.unknown();
    }
    if (found != null) {
      found.checkFolders();
    }
    if (found != null && found.signers() != null && !conf.getBoolean(SIGNED, false)) {
      throw refused("the files of table " + KeyBridge.shown(found.name()) + " are signed when Spark commits them, and this write has "
          + "another commit: bloomseal.spark.write; or a policy without signers, and bloomseal sign", staged);
    }
    if (wanted != null && (found == null ? bound : !found.name().equals(wanted))) {
      throw refused("the options are those of table " + KeyBridge.shown(wanted) + ", and this is not known as its folder: "
          + "bloomseal.spark.enable(spark, policy=..., tables={name: folder})", staged);
    }
    return found;
  }

  /** Whether a table's files have an AAD prefix, or signers: then the session's keys serve the policy's tables, and no other file. */
  private static boolean isBinding(JsonNode given) {
    for (Object table : given == null ? Collections.emptyList() : (Iterable) given.get("tables")) {
      if (((JsonNode) table).hasNonNull("prefix") || isSigned((JsonNode) table)) {
        return true;
      }
    }
    return false;
  }

  /**
   * The table in whose folder a place is, as enable was told; of two folders in one another the inner one's. By its name
   * first: a link that somebody puts into a table leads neither out of it nor into another.
   */
  static JsonNode told(Configuration conf, JsonNode given, Path place) {
    JsonNode found = null;
    for (int way = 0; way < 2 && found == null; way++) {
      boolean links = way == 1;
      for (Object each : given.get("tables")) {
        JsonNode table = (JsonNode) each;
        if (table.hasNonNull("root") && below(conf, place, root(table), links) != null
            && (found == null || below(conf, root(table), root(found), links) != null)) {
          found = table;
        }
      }
    }
    return found;
  }

  private static Path root(JsonNode table) {
    return new Path(table.get("root").textValue());
  }

  /** The place of a file to read; null where no place matters. */
  static TablePlaces of(Configuration conf, Path file) {
    JsonNode given = KeyBridge.given(conf);
    JsonNode told = given == null ? null : told(conf, given, file);
    if (told != null) {
      return new TablePlaces(given, told, below(conf, file, root(told)), file);
    }
    if (!isBinding(given)) {
      return null;
    }
    Path folder = file.getParent();
    while (folder.getParent() != null && folder.getName().indexOf('=') > 0) {
      folder = folder.getParent();
    }
    JsonNode only = null;
    JsonNode called = null;
    int others = 0;
    for (Object each : given.get("tables")) {
      JsonNode table = (JsonNode) each;
      if (!table.hasNonNull("root")) {
        only = table;
        others++;
        called = table.get("name").textValue().equals(folder.getName()) ? table : called;
      }
    }
    String rest = file.toUri().getPath().substring(folder.toUri().getPath().length()).replaceFirst("^/", "");
    return new TablePlaces(given, others == 1 ? only : called, rest, file);
  }

  /** The path from a folder to a place below it, empty for the folder itself, by their names or else without links. */
  static String below(Configuration conf, Path place, Path folder) {
    String named = below(conf, place, folder, false);
    return named != null ? named : below(conf, place, folder, true);
  }

  /** As above; null for other places. A file system's own check knows that hdfs://nn:8020 is hdfs://nn. */
  static String below(Configuration conf, Path place, Path folder, boolean links) {
    URI one = place.toUri();
    URI other = folder.toUri();
    // The usual case, for each file of a table: no file system need be asked.
    if (!links && one.getScheme() != null && one.getScheme().equals(other.getScheme())
        && String.valueOf(one.getAuthority()).equals(String.valueOf(other.getAuthority()))) {
      return below(one.getPath(), other.getPath());
    }
    try {
      FileSystem files = folder.getFileSystem(conf);
      Path whole;
      try {
        whole = files.makeQualified(place.getFileSystem(conf).makeQualified(place));
      } catch (IllegalArgumentException e) {
        return null; // on another file system
      }
      return below(real(files, whole, links), real(files, files.makeQualified(folder), links));
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("it can't be told to which table a file belongs (" + place + ")");
    }
  }

  private static String below(String inner, String outer) {
    if (inner.equals(outer)) {
      return "";
    }
    outer = outer.endsWith("/") ? outer : outer + "/";
    return inner.startsWith(outer) ? inner.substring(outer.length()) : null;
  }

  /** Of a local place without the links on the way to it, as far as it is there, if wanted. */
  private static String real(FileSystem files, Path whole, boolean links) throws IOException {
    String path = whole.toUri().getPath();
    return links && files instanceof LocalFileSystem ? new File(path).getCanonicalPath() : path;
  }

  /** Where the file will lie when Spark has committed it. */
  private static Path finalPath(Configuration conf, Path staged) {
    String output = conf.get("mapreduce.output.fileoutputformat.outputdir");
    Path folder = output == null ? null : new Path(output);
    if (folder != null && folder.getName().startsWith(".spark-staging-")) {
      folder = folder.getParent(); // the write's own folder in the table's, by LateDeletes
    }
    String above = folder == null ? null : folder.toUri().getPath().replaceFirst("/*$", "/");
    String whole = staged.toUri().getPath();
    if (above == null || !whole.startsWith(above)) {
      throw refused("a file is begun where Spark's own committers stage none, so its final place is not known", staged);
    }
    String rest = whole.substring(above.length());
    Matcher known = STAGED.matcher(rest);
    if (known.matches()) {
      rest = known.group(1);
    }
    String[] parts = rest.split("/");
    for (int i = 0; i < parts.length; i++) {
      if (parts[i].startsWith(".") || (parts[i].startsWith("_") && parts[i].indexOf('=') < 0)) {
        throw refused("a file is begun in a staging folder of a kind that is not known, so its final place is not, either", staged);
      }
    }
    return new Path(folder.toString().replaceFirst("/*$", "/") + rest);
  }

  /** Whether the files of a table, which may be null, are read only if one of its signers has signed them. */
  static boolean isSigned(JsonNode table) {
    return table != null && table.hasNonNull("signers");
  }

  /** Lets a task write files of such a table: its commit protocol signs them. */
  static void sign(Configuration conf) {
    conf.setBoolean(SIGNED, true);
  }

  /** Who may sign the table's files; null: nobody has to. */
  JsonNode signers() {
    return isSigned(table) ? table.get("signers") : null;
  }

  String name() {
    return table.get("name").textValue();
  }

  boolean storesPrefix() {
    return table.get("store").asBoolean();
  }

  /** The AAD prefix of the file; null where its table has none, or is not known. */
  byte[] prefix() {
    if (table == null || !table.hasNonNull("prefix")) {
      return null;
    }
    StringBuilder text = new StringBuilder();
    for (Object each : table.get("prefix")) {
      JsonNode part = (JsonNode) each;
      text.append(part.get("text").textValue());
      String field = part.get("field").textValue();
      text.append(field.equals("path") ? path : field.equals("file") ? path.substring(path.lastIndexOf('/') + 1) : "");
    }
    return text.toString().getBytes(StandardCharsets.UTF_8);
  }

  /** Refuses a master key that is none of the table's: a session's keys are for the policy's tables. */
  void check(String masterKey) {
    if (table == null) {
      throw unknown();
    }
    if (!bound || holds("keys", masterKey)) {
      return;
    }
    throw refused("master key " + KeyBridge.shown(masterKey) + " is none of table " + KeyBridge.shown(name()), file);
  }

  /** Whether the table's files say this of themselves: footer (it is sealed), complete (columns without a key are). */
  boolean seals(String what) {
    return table.get(what).asBoolean();
  }

  /** The master keys that the table's columns are held to; null where a read does not ask for it. */
  JsonNode pins() {
    return table != null && table.hasNonNull("pins") ? table.get("pins") : null;
  }

  /** The master key of a column, of the nearest of the policy's columns and groups: an SSN may hold what an ssn does. */
  String keyOf(String leaf) {
    JsonNode columns = table.get("columns");
    String nearest = nearest(columns, leaf, false);
    nearest = nearest != null ? nearest : nearest(columns, leaf, true);
    return nearest == null ? null : columns.get(nearest).textValue();
  }

  /** Of these columns, and groups above several, the one that a leaf is or lies nearest below; null where there is none. */
  static String nearest(JsonNode columns, String leaf, boolean anyCase) {
    String found = null;
    for (Iterator names = columns.fieldNames(); names.hasNext();) {
      String name = (String) names.next();
      if ((leaf + ".").regionMatches(anyCase, 0, name + ".", 0, name.length() + 1)
          && (found == null || name.length() > found.length())) {
        found = name;
      }
    }
    return found;
  }

  /** Folders' names stand in clear: refuses those of columns that the policy seals. */
  private void checkFolders() {
    String[] parts = path.split("/");
    for (int i = 0; i < parts.length - 1; i++) {
      String column = parts[i].substring(0, Math.max(0, parts[i].indexOf('=')));
      if (!column.isEmpty() && !holds("folders", ExternalCatalogUtils.unescapePathName(column))) {
        throw refused("the values of column " + KeyBridge.shown(column) + " would stand in the names of folders; "
            + "a policy that seals all columns names in partition_by those that may", file);
      }
    }
  }

  private boolean holds(String list, String name) {
    if (list.equals("folders") && !table.hasNonNull(list)) {
      return true;
    }
    for (Object each : table.get(list)) {
      if (((JsonNode) each).textValue().equals(name)) {
        return true;
      }
    }
    return false;
  }

  private ParquetCryptoRuntimeException unknown() {
    return refused("no table of the policy is known to lie here: "
        + "bloomseal.spark.enable(spark, policy=..., tables={name: folder})", file);
  }

  static ParquetCryptoRuntimeException refused(String why, Path place) {
    return new ParquetCryptoRuntimeException("bloomseal.PolicyError: " + why + " (" + place + ")");
  }
}
