package bloomseal.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.crypto.AesCtrDecryptor;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.InternalColumnDecryptionSetup;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;

/**
 * Before Spark's own reader opens a file for a read of Bloomseal's: each column of the query is sealed, under a master key that the
 * policy names. Whoever may use the footer key alone could else put values of his own there. parquet-java asks for keys, and not for
 * which column; so the footer is read once more.
 *
 * Written for Janino, hence without lambdas and generics.
 */
final class Pins {
  private final TablePlaces place;
  private final JsonNode pins;
  private final Map masterKeys = new HashMap();

  private Pins(TablePlaces place) {
    this.place = place;
    this.pins = place.pins();
  }

  /** @param wanted the columns that Spark reads, as its schema in JSON; null: all */
  static void check(Configuration conf, TablePlaces place, FileKeys keys, FileDecryptionProperties sealed, String wanted) {
    try {
      // Not ParquetReadOptions.builder(), which reads all of Hadoop's settings anew.
      ParquetReadOptions options = HadoopReadOptions.builder(conf, place.file).withDecryption(sealed).build();
      ParquetFileReader reader = new ParquetFileReader(HadoopInputFile.fromPath(place.file, conf), options);
      try {
        JsonNode fields = wanted == null ? null : KeyBridge.JSON.readTree(wanted).get("fields");
        new Pins(place).check(reader, keys, fields);
      } finally {
        reader.close();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(place.file.toString(), e);
    }
  }

  private void check(ParquetFileReader reader, FileKeys keys, JsonNode wanted) {
    String footer = keys.masterKey;
    need(pins.get("footer"), footer, "the footer");
    for (Object block : reader.getRowGroups()) {
      for (Object each : ((BlockMetaData) block).getColumns()) {
        ColumnChunkMetaData chunk = (ColumnChunkMetaData) each;
        if (isIn(wanted, chunk.getPath().toArray()[0])) {
          keys.masterKey = null;
          chunk.getValueCount(); // asks for the key of a column that has its own, once in a file
          if (keys.masterKey != null) {
            masterKeys.put(chunk.getPath(), keys.masterKey);
          }
          String own = (String) masterKeys.get(chunk.getPath());
          InternalColumnDecryptionSetup setup = reader.getFileMetaData().getFileDecryptor().getColumnSetup(chunk.getPath());
          check(chunk.getPath().toDotString(), setup, own == null ? footer : own);
        }
      }
    }
  }

  private void check(String column, InternalColumnDecryptionSetup setup, String masterKey) {
    JsonNode columns = pins.get("columns");
    String pinned = TablePlaces.nearest(columns, column, false);
    String shown = "column " + KeyBridge.shown(column);
    if (pinned == null && TablePlaces.nearest(columns, column, true) != null) {
      throw TablePlaces.refused("the name of " + shown + " differs from that of one with a key in case alone", place.file);
    }
    if (setup.isEncrypted()) {
      need(pinned == null ? pins.get("footer") : columns.get(pinned), masterKey, shown);
    } else if (pinned != null || place.seals("complete")) {
      throw TablePlaces.refused(shown + " is in plaintext where an encrypted one was expected", place.file);
    }
    if (setup.getDataDecryptor() instanceof AesCtrDecryptor && !pins.get("ctr").asBoolean()) {
      throw TablePlaces.refused("the file says AES_GCM_CTR_V1: nothing authenticates its pages", place.file);
    }
  }

  private void need(JsonNode accepted, String masterKey, String what) {
    for (Object each : accepted) {
      if (((JsonNode) each).textValue().equals(masterKey)) {
        return;
      }
    }
    throw TablePlaces.refused(what + " is sealed under master key " + KeyBridge.shown(String.valueOf(masterKey))
        + ", and the policy has another one", place.file);
  }

  /** @param fields null: all */
  private static boolean isIn(JsonNode fields, String name) {
    if (fields == null) {
      return true;
    }
    for (Object each : fields) {
      if (((JsonNode) each).get("name").textValue().equalsIgnoreCase(name)) {
        return true;
      }
    }
    return false;
  }
}
