package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.InternalFileDecryptor;
import org.apache.parquet.format.EncryptionAlgorithm;
import org.apache.parquet.format.FileCryptoMetaData;
import org.apache.parquet.format.FileMetaData;
import org.apache.parquet.format.Util;
import org.apache.parquet.format.converter.ParquetMetadataConverter;
import org.apache.spark.internal.io.FileCommitProtocol;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The tail of a file in a table whose policy names signers, and the signature beside the file. The key helper knows what is signed, who
 * may sign, and on the driver the key to sign with (keytools/signatures); it is told what stands in the tail.
 *
 * parquet-java opens the file after this look, and may find another one there. So it is given the footer key that the verified tail
 * leads to: no other file opens under that.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class SignedTail {
  /** As limits.py and layout.py have them. */
  private static final int LONGEST_FOOTER = 1 << 30;
  private static final int LONGEST_SIGNATURE = 64 * 1024;
  private static final int FIRST_READ = 64 * 1024;
  /** Of a task's own configuration, with a file that it has begun: the key of its footer. */
  private static final String KEY = "bloomseal.footer.key.";

  private final Configuration conf;
  private final long length;
  private final byte[] tail;
  private final String digest;
  private byte[] unique;
  private byte[] prefix;
  private byte[] keyMetadata;

  private SignedTail(Configuration conf, Path file) throws IOException {
    this.conf = conf;
    FileSystem files = file.getFileSystem(conf);
    length = files.getFileStatus(file).getLen();
    FSDataInputStream opened = files.open(file);
    try {
      tail = tail(opened);
    } finally {
      opened.close();
    }
    digest = HexFormat.of().formatHex(KeyBridge.sha256(tail));
    EncryptionAlgorithm algorithm;
    if (isSealed()) {
      FileCryptoMetaData found = Util.readFileCryptoMetaData(new ByteArrayInputStream(tail));
      algorithm = found.getEncryption_algorithm();
      keyMetadata = found.getKey_metadata();
    } else {
      FileMetaData found = Util.readFileMetaData(new ByteArrayInputStream(tail), true);
      algorithm = found.getEncryption_algorithm();
      keyMetadata = found.getFooter_signing_key_metadata();
    }
    if (algorithm == null) {
      throw TablePlaces.refused("the file is in plaintext, and those of a table with signers are sealed", file);
    } else if (algorithm.isSetAES_GCM_V1()) {
      unique = algorithm.getAES_GCM_V1().getAad_file_unique();
      prefix = algorithm.getAES_GCM_V1().getAad_prefix();
    } else {
      unique = algorithm.getAES_GCM_CTR_V1().getAad_file_unique();
      prefix = algorithm.getAES_GCM_CTR_V1().getAad_prefix();
    }
  }

  private boolean isSealed() {
    return new String(tail, tail.length - 4, 4, StandardCharsets.ISO_8859_1).equals("PARE");
  }

  /** From the FileCryptoMetaData, or the plaintext footer, to the end. */
  private byte[] tail(FSDataInputStream opened) throws IOException {
    byte[] end = new byte[(int) Math.min(length, FIRST_READ)];
    opened.readFully(length - end.length, end);
    int footer = end.length < 12 ? -1 : ByteBuffer.wrap(end).order(ByteOrder.LITTLE_ENDIAN).getInt(end.length - 8);
    if (footer < 0 || footer > Math.min(LONGEST_FOOTER, length - 12)) {
      throw new IOException("not a Parquet file, or a truncated one");
    }
    if (footer + 8 <= end.length) {
      return Arrays.copyOfRange(end, end.length - footer - 8, end.length);
    }
    byte[] whole = new byte[footer + 8];
    opened.readFully(length - whole.length, whole);
    return whole;
  }

  /** The tail of a file, if one of the table's signers has signed it. */
  static SignedTail judged(Configuration conf, TablePlaces place) {
    try {
      SignedTail tail = new SignedTail(conf, place.file);
      String envelope = null;
      try {
        envelope = Base64.getEncoder().encodeToString(FileKeys.read(conf, tail.beside(place.file), LONGEST_SIGNATURE));
      } catch (FileNotFoundException e) {
        // Nobody has signed it: the helper says so.
      }
      tail.ask(conf, place, "judge", "signer", envelope);
      return tail;
    } catch (IOException e) {
      throw new UncheckedIOException(place.file.toString(), e);
    }
  }

  /** The footer's key: key material beside a file is signed by nobody, and may lead to a key of somebody's own. */
  byte[] footerKey(TablePlaces place, FileKeys keys) {
    byte[] key = keys.getKey(keyMetadata);
    open(place, key);
    return key;
  }

  private void open(TablePlaces place, byte[] key) {
    FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(key);
    if (place.prefix() != null) {
      builder.withAADPrefix(place.prefix());
    }
    FileDecryptionProperties properties = builder.build();
    InternalFileDecryptor keys = new InternalFileDecryptor(properties);
    ByteArrayInputStream footer = new ByteArrayInputStream(tail);
    try {
      if (isSealed()) {
        keys.setFileCryptoMetaData(Util.readFileCryptoMetaData(footer).getEncryption_algorithm(), true, keyMetadata);
      }
      ParquetReadOptions options = HadoopReadOptions.builder(conf, place.file).withDecryption(properties).build();
      new ParquetMetadataConverter(options).readParquetMetadata(
          footer, ParquetMetadataConverter.SKIP_ROW_GROUPS, keys, isSealed(), tail.length - 8);
    } catch (Exception e) {
      throw TablePlaces.refused("the footer does not open under the file's own key: the file, or the key material beside it, was exchanged",
          place.file);
    }
  }

  /** Before a task begins its first file: keys that options name are not its own. */
  static void forget(Configuration conf) {
    for (Object each : conf.getPropsWithPrefix(KEY).keySet()) {
      conf.unset(KEY + each);
    }
  }

  /** Keeps the key of a file that a task begins, by which it knows the file again when it commits. */
  static void begin(Configuration conf, Path staged, byte[] key) {
    conf.set(KEY + staged, Base64.getEncoder().encodeToString(key));
  }

  /**
   * The tails of the files that a task has written, before it commits them. Whoever writes to the storage may put others where they lie:
   * those are under other keys.
   */
  static Set written(Configuration conf) {
    Set tails = (Set) Set$.MODULE$.empty();
    for (Object each : conf.getPropsWithPrefix(KEY).entrySet()) {
      Path file = new Path((String) ((Map.Entry) each).getKey());
      TablePlaces place = TablePlaces.ofWrite(conf, file);
      try {
        SignedTail tail = new SignedTail(conf, file);
        tail.open(place, Base64.getDecoder().decode((String) ((Map.Entry) each).getValue()));
        tails = (Set) tails.incl(tail.at(place));
      } catch (IOException e) {
        throw new UncheckedIOException(file.toString(), e);
      }
      conf.unset(KEY + file);
    }
    return tails;
  }

  /** A task's message to the driver, which signs no other files than these. */
  static FileCommitProtocol.TaskCommitMessage told(Object message, Set tails) {
    return new FileCommitProtocol.TaskCommitMessage(new Tuple2(message, tails));
  }

  /** As Spark's own protocols know it. */
  static FileCommitProtocol.TaskCommitMessage plain(Object message) {
    return new FileCommitProtocol.TaskCommitMessage(((Tuple2) ((FileCommitProtocol.TaskCommitMessage) message).obj())._1());
  }

  static Seq plain(Seq tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      found.add(plain(each.next()));
    }
    return CollectionConverters.asScala(found).toSeq();
  }

  static Set tails(Seq tasks) {
    Set found = (Set) Set$.MODULE$.empty();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      found = (Set) found.concat((Set) ((Tuple2) ((FileCommitProtocol.TaskCommitMessage) each.next()).obj())._2());
    }
    return found;
  }

  private String at(TablePlaces place) {
    return digest + " " + place.path;
  }

  /** Before a job writes its first file into a table whose files are signed: the driver has a key to sign with. */
  static void needSigner(Configuration conf, Path table) {
    JsonNode given = KeyBridge.given(conf);
    JsonNode found = given == null ? null : TablePlaces.told(conf, given, table);
    if (TablePlaces.isSigned(found)) {
      String[] request = {"op", "signer", "table", found.get("name").textValue(), "signers", found.get("signers").toString()};
      ask(conf, table, request, "signer");
    }
  }

  /**
   * Signs a file that a task has written, before anybody finds it.
   *
   * @param written where it lies
   * @param file its place in the table
   * @param tails of the files that the job's tasks have written
   */
  static void sign(Configuration conf, Path written, Path file, Set tails) throws IOException {
    TablePlaces place = Guard.isHidden(file) ? null : TablePlaces.of(conf, file);
    if (place == null || place.signers() == null) {
      return;
    }
    SignedTail tail = new SignedTail(conf, written);
    if (!tails.contains(tail.at(place))) {
      throw TablePlaces.refused("somebody has put a file among those that the tasks of this write made, and it is not signed", written);
    }
    byte[] envelope = Base64.getDecoder().decode(tail.ask(conf, place, "sign", "envelope", null));
    Path beside = tail.beside(file);
    FileSystem files = file.getFileSystem(conf);
    if (files instanceof LocalFileSystem) {
      // Hadoop's own leaves a checksum beside it, and starts a process to give it its permissions.
      OpenOption[] fresh = new OpenOption[] {StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE};
      Files.write(Paths.get(beside.toUri().getPath(), new String[0]), envelope, fresh);
      return;
    }
    FSDataOutputStream opened = files.create(beside, false);
    try {
      opened.write(envelope);
    } finally {
      opened.close();
    }
  }

  private Path beside(Path file) {
    return new Path(file.getParent(), "_SIGNATURE_" + file.getName() + "_" + digest.substring(0, 32) + ".json");
  }

  private String ask(Configuration conf, TablePlaces place, String op, String wanted, String envelope) {
    return ask(conf, place.file, new String[] {
        "op", op, "table", place.name(), "signers", place.signers().toString(), "path", place.path, "length", String.valueOf(length),
        "tail_sha256", digest, "aad_file_unique", hex(unique), "aad_prefix", hex(prefix), "envelope", envelope}, wanted);
  }

  private static String ask(Configuration conf, Path place, String[] request, String wanted) {
    JsonNode answer = KeyBridge.of(conf).answer("a signature", request);
    if (answer.hasNonNull("refused")) {
      throw TablePlaces.refused(KeyHelper.safe(answer.get("refused").asText()), place);
    }
    return KeyBridge.told(answer, wanted);
  }

  private static String hex(byte[] bytes) {
    return bytes == null ? "" : HexFormat.of().formatHex(bytes);
  }
}
