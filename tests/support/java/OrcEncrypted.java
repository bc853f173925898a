package bloomseal.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.crypto.key.KeyProviderFactory;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.type.HiveDecimal;
import org.apache.hadoop.hive.ql.exec.vector.BytesColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DecimalColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.DoubleColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.ListColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.MapColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.MultiValuedColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.StructColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.TimestampColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory;
import org.apache.orc.CompressionKind;
import org.apache.orc.EncryptionAlgorithm;
import org.apache.orc.InMemoryKeystore;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.orc.RecordReader;
import org.apache.orc.TypeDescription;
import org.apache.orc.Writer;
import org.apache.orc.impl.CryptoUtils;
import org.apache.orc.impl.KeyProvider;

/**
 * Encrypted ORC files, written and read by the Java library. {@code keys} is {"memory": [[name, version, hexadecimal], …]} for its
 * keystore in memory, {"hadoop": provider URI} for Hadoop's key providers, or {} for none.
 */
public final class OrcEncrypted {
    private static final ObjectMapper JSON = new ObjectMapper();

    private OrcEncrypted() {}

    public static void write(String file, String schemaText, String rowsText, String keysText, String optionsText) throws Exception {
        JsonNode options = JSON.readTree(optionsText);
        ArrayNode rows = (ArrayNode) JSON.readTree(rowsText);
        JsonNode keys = JSON.readTree(keysText);
        TypeDescription schema = TypeDescription.fromString(schemaText);
        Configuration conf = configuration(keys);
        OrcFile.WriterOptions writing = OrcFile.writerOptions(conf).setSchema(schema).overwrite(true)
                .compress(CompressionKind.valueOf(options.get("compression").textValue()))
                .rowIndexStride(options.get("stride").intValue())
                .stripeSize(options.get("stripe_size").longValue())
                .bufferSize(options.get("buffer_size").intValue())
                .bloomFilterColumns(options.get("filters").textValue())
                .bloomFilterFpp(options.get("fpp").doubleValue());
        if (options.get("encrypt").textValue().length() > 0) {
            writing = writing.encrypt(options.get("encrypt").textValue()).setKeyProvider(provider(keys, conf));
            if (options.get("masks").textValue().length() > 0) {
                writing = writing.masks(options.get("masks").textValue());
            }
        }
        int each = options.get("stripe_rows").intValue();
        Writer writer = OrcFile.createWriter(new Path(file), writing);
        VectorizedRowBatch batch = schema.createRowBatch(Math.max(1, Math.min(1024, each)));
        int done = 0;
        for (int i = 0; i < rows.size(); i++) {
            int at = batch.size++;
            for (int c = 0; c < batch.cols.length; c++) {
                set(batch.cols[c], (TypeDescription) schema.getChildren().get(c), at, at(at(rows, i), c));
            }
            done++;
            if (batch.size == batch.getMaxSize() || done % each == 0 || i == rows.size() - 1) {
                writer.addRowBatch(batch);
                batch.reset();
                if (done % each == 0 && i < rows.size() - 1) {
                    writer.writeIntermediateFooter();
                }
            }
        }
        writer.close();
    }

    /** Merges files without decoding them: their stripes keep their ids and local keys. */
    public static int merge(String target, String sourcesText, String keysText) throws Exception {
        JsonNode keys = JSON.readTree(keysText);
        Configuration conf = configuration(keys);
        List sources = new ArrayList();
        Iterator names = JSON.readTree(sourcesText).elements();
        while (names.hasNext()) {
            sources.add(new Path(((JsonNode) names.next()).textValue()));
        }
        OrcFile.WriterOptions writing = OrcFile.writerOptions(conf).overwrite(true).setKeyProvider(provider(keys, conf));
        return OrcFile.mergeFiles(new Path(target), writing, sources).size();
    }

    /**
     * The rows as JSON arrays, by {@code {"rows": [...]}}; with a column and a literal only those of row groups that statistics and
     * filters leave possible.
     */
    public static String rows(String file, String keysText, String column, String literal) throws Exception {
        JsonNode keys = JSON.readTree(keysText);
        Configuration conf = configuration(keys);
        Reader reader = OrcFile.createReader(new Path(file), OrcFile.readerOptions(conf).setKeyProvider(provider(keys, conf)));
        Reader.Options options = reader.options();
        if (column.length() > 0) {
            JsonNode asked = JSON.readTree(literal);
            SearchArgument.Builder builder = SearchArgumentFactory.newBuilder();
            if (asked.isTextual()) {
                builder.equals(column, PredicateLeaf.Type.STRING, asked.textValue());
            } else {
                builder.equals(column, PredicateLeaf.Type.LONG, Long.valueOf(asked.longValue()));
            }
            options.searchArgument(builder.build(), new String[] {null, column}).allowSARGToFilter(false);
        }
        TypeDescription schema = reader.getSchema();
        RecordReader records = reader.rows(options);
        VectorizedRowBatch batch = schema.createRowBatch();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode out = answer.putArray("rows");
        while (records.nextBatch(batch)) {
            for (int r = 0; r < batch.size; r++) {
                ArrayNode row = out.addArray();
                for (int c = 0; c < batch.cols.length; c++) {
                    get(row, batch.cols[c], (TypeDescription) schema.getChildren().get(c), r);
                }
            }
        }
        records.close();
        reader.close();
        return answer.toString();
    }

    /** Makes a key, and more versions of it, in a Hadoop key store; all keys in hexadecimal, by comma. */
    public static String makeStore(String uri, String name, int bits, int versions) throws Exception {
        Configuration conf = new Configuration(false);
        conf.set("hadoop.security.key.provider.path", uri);
        org.apache.hadoop.crypto.key.KeyProvider store =
                (org.apache.hadoop.crypto.key.KeyProvider) KeyProviderFactory.getProviders(conf).get(0);
        org.apache.hadoop.crypto.key.KeyProvider.Options options = org.apache.hadoop.crypto.key.KeyProvider.options(conf);
        options.setBitLength(bits);
        options.setCipher("AES/CTR/NoPadding");
        store.createKey(name, options);
        for (int i = 1; i < versions; i++) {
            store.rollNewVersion(name);
        }
        store.flush();
        StringBuilder keys = new StringBuilder();
        for (int i = 0; i < versions; i++) {
            keys.append(i == 0 ? "" : ",").append(Values.hex(store.getKeyVersion(name + "@" + i).getMaterial()));
        }
        return keys.toString();
    }

    /** What a Hadoop KMS over such a store makes of an encrypted key and the IV that it is sent. */
    public static String opened(String uri, String version, String iv, String encrypted) throws Exception {
        Configuration conf = new Configuration(false);
        conf.set("hadoop.security.key.provider.path", uri);
        org.apache.hadoop.crypto.key.KeyProviderCryptoExtension store =
                org.apache.hadoop.crypto.key.KeyProviderCryptoExtension.createKeyProviderCryptoExtension(
                        (org.apache.hadoop.crypto.key.KeyProvider) KeyProviderFactory.getProviders(conf).get(0));
        return Values.hex(store.decryptEncryptedKey(
                org.apache.hadoop.crypto.key.KeyProviderCryptoExtension.EncryptedKeyVersion.createForDecryption(
                        version.substring(0, version.indexOf('@')), version, Values.unhex(iv), Values.unhex(encrypted))).getMaterial());
    }

    private static Configuration configuration(JsonNode keys) {
        Configuration conf = new Configuration();
        conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        conf.setBoolean("fs.file.impl.disable.cache", true);
        if (keys.has("hadoop")) {
            conf.set("hadoop.security.key.provider.path", keys.get("hadoop").textValue());
        }
        return conf;
    }

    private static KeyProvider provider(JsonNode keys, Configuration conf) throws Exception {
        if (keys.has("hadoop")) {
            return org.apache.orc.impl.HadoopShimsFactory.get().getHadoopKeyProvider(conf, new java.security.SecureRandom());
        }
        InMemoryKeystore store = new InMemoryKeystore();
        if (keys.has("memory")) {
            Iterator all = keys.get("memory").elements();
            while (all.hasNext()) {
                JsonNode one = (JsonNode) all.next();
                byte[] key = Values.unhex(at(one, 2).textValue());
                EncryptionAlgorithm algorithm = key.length == 32 ? EncryptionAlgorithm.AES_CTR_256 : EncryptionAlgorithm.AES_CTR_128;
                store.addKey(at(one, 0).textValue(), at(one, 1).intValue(), algorithm, key);
            }
        }
        return store;
    }

    private static JsonNode at(JsonNode list, int place) {
        return (JsonNode) list.get(place);
    }

    private static void set(ColumnVector vector, TypeDescription type, int row, JsonNode value) {
        if (value == null || value.isNull()) {
            vector.noNulls = false;
            vector.isNull[row] = true;
            return;
        }
        if (vector instanceof TimestampColumnVector) {
            TimestampColumnVector times = (TimestampColumnVector) vector;
            times.set(row, new java.sql.Timestamp(value.longValue()));
        } else if (vector instanceof LongColumnVector) {
            ((LongColumnVector) vector).vector[row] = value.isBoolean() ? (value.booleanValue() ? 1L : 0L) : value.longValue();
        } else if (vector instanceof DoubleColumnVector) {
            ((DoubleColumnVector) vector).vector[row] = value.doubleValue();
        } else if (vector instanceof DecimalColumnVector) {
            ((DecimalColumnVector) vector).set(row, HiveDecimal.create(value.textValue()));
        } else if (vector instanceof StructColumnVector) {
            StructColumnVector struct = (StructColumnVector) vector;
            for (int f = 0; f < struct.fields.length; f++) {
                set(struct.fields[f], (TypeDescription) type.getChildren().get(f), row, at(value, f));
            }
        } else if (vector instanceof MultiValuedColumnVector) {
            MultiValuedColumnVector many = (MultiValuedColumnVector) vector;
            many.offsets[row] = many.childCount;
            many.lengths[row] = value.size();
            many.childCount += value.size();
            for (int e = 0; e < value.size(); e++) {
                int place = (int) many.offsets[row] + e;
                if (vector instanceof ListColumnVector) {
                    ListColumnVector list = (ListColumnVector) vector;
                    list.child.ensureSize(list.childCount, true);
                    set(list.child, (TypeDescription) type.getChildren().get(0), place, at(value, e));
                } else {
                    MapColumnVector map = (MapColumnVector) vector;
                    map.keys.ensureSize(map.childCount, true);
                    map.values.ensureSize(map.childCount, true);
                    set(map.keys, (TypeDescription) type.getChildren().get(0), place, at(at(value, e), 0));
                    set(map.values, (TypeDescription) type.getChildren().get(1), place, at(at(value, e), 1));
                }
            }
        } else {
            ((BytesColumnVector) vector).setVal(row, value.textValue().getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void get(ArrayNode out, ColumnVector vector, TypeDescription type, int row) {
        int at = vector.isRepeating ? 0 : row;
        if (!vector.noNulls && vector.isNull[at]) {
            out.addNull();
        } else if (vector instanceof TimestampColumnVector) {
            out.add(((TimestampColumnVector) vector).asScratchTimestamp(at).getTime());
        } else if (vector instanceof LongColumnVector) {
            out.add(((LongColumnVector) vector).vector[at]);
        } else if (vector instanceof DoubleColumnVector) {
            out.add(((DoubleColumnVector) vector).vector[at]);
        } else if (vector instanceof DecimalColumnVector) {
            out.add(((DecimalColumnVector) vector).vector[at].getHiveDecimal().toString());
        } else if (vector instanceof StructColumnVector) {
            StructColumnVector struct = (StructColumnVector) vector;
            ArrayNode inner = out.addArray();
            for (int f = 0; f < struct.fields.length; f++) {
                get(inner, struct.fields[f], (TypeDescription) type.getChildren().get(f), at);
            }
        } else {
            out.add(((BytesColumnVector) vector).toString(at));
        }
    }
}
