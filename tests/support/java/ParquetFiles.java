package bloomseal.harness;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.column.ParquetProperties;
import org.apache.parquet.column.page.PageReadStore;
import org.apache.parquet.column.values.bloomfilter.BloomFilter;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.crypto.keytools.KeyToolkit;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroup;
import org.apache.parquet.example.data.simple.convert.GroupRecordConverter;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.filter2.predicate.FilterApi;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.ColumnPath;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.parquet.io.ColumnIOFactory;
import org.apache.parquet.io.MessageColumnIO;
import org.apache.parquet.io.RecordReader;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.parquet.schema.PrimitiveType;

/**
 * Whole files at a time, so that few calls cross between Python and Java. Arguments and answers are JSON texts, as {@code jvm.py} writes
 * and reads them; {@code access} is {"keys": decryption keys or null, "properties": Hadoop configuration or null}.
 */
public final class ParquetFiles {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ParquetFiles() {}

    public static void write(String file, String schemaText, String rowsText, String optionsText) throws Exception {
        JsonNode options = JSON.readTree(optionsText);
        JsonNode rows = JSON.readTree(rowsText);
        MessageType schema = MessageTypeParser.parseMessageType(schemaText);
        Configuration conf = Keys.configuration(options.get("properties"));

        ExampleParquetWriter.Builder example = ExampleParquetWriter.builder(HadoopOutputFile.fromPath(path(file), conf));
        example.withType(schema);
        ParquetWriter.Builder builder = example;
        builder.withConf(conf);
        builder.withWriteMode(ParquetFileWriter.Mode.OVERWRITE);
        if (Keys.has(options, "encryption")) {
            builder.withEncryption(Keys.encryption(options.get("encryption")));
        }
        boolean v2 = options.get("page_version").intValue() == 2;
        builder.withWriterVersion(
                v2 ? ParquetProperties.WriterVersion.PARQUET_2_0 : ParquetProperties.WriterVersion.PARQUET_1_0);
        builder.withDictionaryEncoding(options.get("dictionary").booleanValue());
        builder.withCompressionCodec(CompressionCodecName.valueOf(options.get("compression").textValue()));
        if (Keys.has(options, "row_group_rows")) {
            builder.withRowGroupRowCountLimit(options.get("row_group_rows").intValue());
        }
        if (Keys.has(options, "row_group_bytes")) {
            builder.withRowGroupSize(options.get("row_group_bytes").longValue());
        }
        if (Keys.has(options, "page_bytes")) {
            builder.withPageSize(options.get("page_bytes").intValue());
        }
        if (Keys.has(options, "page_rows")) {
            builder.withPageRowCountLimit(options.get("page_rows").intValue());
        }
        if (Keys.has(options, "dictionary_bytes")) {
            builder.withDictionaryPageSize(options.get("dictionary_bytes").intValue());
        }
        if (Keys.has(options, "max_filter_bytes")) {
            builder.withMaxBloomFilterBytes(options.get("max_filter_bytes").intValue());
        }
        builder.withPageWriteChecksumEnabled(options.get("page_checksums").booleanValue());
        builder.withAdaptiveBloomFilterEnabled(options.get("adaptive_filters").booleanValue());
        Iterator names = options.get("filters").fieldNames();
        while (names.hasNext()) {
            String name = (String) names.next();
            JsonNode filter = options.get("filters").get(name);
            builder.withBloomFilterEnabled(name, true);
            if (Keys.has(filter, "ndv")) {
                builder.withBloomFilterNDV(name, filter.get("ndv").longValue());
            }
            if (Keys.has(filter, "fpp")) {
                builder.withBloomFilterFPP(name, filter.get("fpp").doubleValue());
            }
        }
        ParquetWriter writer = builder.build();
        try {
            for (int i = 0; i < rows.size(); i++) {
                Group group = new SimpleGroup(schema);
                Values.fill(group, schema, (JsonNode) rows.get(i));
                writer.write(group);
            }
        } finally {
            writer.close();
        }
    }

    /** All rows; {@code columns} (a JSON list of top-level names, or null) chooses, so that columns without a key can be left out. */
    public static String rows(String file, String accessText, String columnsText) throws Exception {
        JsonNode columns = JSON.readTree(columnsText);
        ParquetFileReader reader = open(file, accessText, null);
        try {
            MessageType schema = reader.getFileMetaData().getSchema();
            MessageType wanted = columns.isNull() ? schema : project(schema, columns);
            reader.setRequestedSchema(wanted);
            MessageColumnIO io = new ColumnIOFactory(reader.getFileMetaData().getCreatedBy()).getColumnIO(wanted, schema);
            ArrayNode rows = JSON.createArrayNode();
            PageReadStore pages = reader.readNextRowGroup();
            while (pages != null) {
                RecordReader records = io.getRecordReader(pages, new GroupRecordConverter(wanted));
                for (long i = 0; i < pages.getRowCount(); i++) {
                    rows.add(Values.dump((Group) records.read(), wanted));
                }
                pages = reader.readNextRowGroup();
            }
            return JSON.writeValueAsString(rows);
        } finally {
            reader.close();
        }
    }

    private static MessageType project(MessageType schema, JsonNode columns) {
        java.util.ArrayList fields = new java.util.ArrayList();
        for (int i = 0; i < columns.size(); i++) {
            fields.add(schema.getType(((JsonNode) columns.get(i)).textValue()));
        }
        return new MessageType(schema.getName(), fields);
    }

    /** One object per row group: {bytes, algorithm, hash, bitset} of the column's filter, or null where it has none. */
    public static String filters(String file, String accessText, String column) throws Exception {
        ParquetFileReader reader = open(file, accessText, null);
        try {
            ArrayNode answer = JSON.createArrayNode();
            List blocks = reader.getRowGroups();
            for (int i = 0; i < blocks.size(); i++) {
                BloomFilter filter = reader.readBloomFilter(chunk((BlockMetaData) blocks.get(i), column));
                if (filter == null) {
                    answer.addNull();
                    continue;
                }
                ByteArrayOutputStream bitset = new ByteArrayOutputStream();
                filter.writeTo(bitset);
                ObjectNode node = answer.addObject();
                node.put("bytes", filter.getBitsetSize());
                node.put("algorithm", filter.getAlgorithm().toString());
                node.put("hash", filter.getHashStrategy().toString());
                node.put("bitset", Values.hex(bitset.toByteArray()));
            }
            return JSON.writeValueAsString(answer);
        } finally {
            reader.close();
        }
    }

    /** One list per row group: a boolean per value, parquet-java's answer to "may it be there?"; null where there is no filter. */
    public static String probe(String file, String accessText, String column, String valuesText) throws Exception {
        JsonNode values = JSON.readTree(valuesText);
        ParquetFileReader reader = open(file, accessText, null);
        try {
            ArrayNode answer = JSON.createArrayNode();
            List blocks = reader.getRowGroups();
            for (int i = 0; i < blocks.size(); i++) {
                ColumnChunkMetaData chunk = chunk((BlockMetaData) blocks.get(i), column);
                BloomFilter filter = reader.readBloomFilter(chunk);
                if (filter == null) {
                    answer.addNull();
                    continue;
                }
                ArrayNode found = answer.addArray();
                for (int k = 0; k < values.size(); k++) {
                    found.add(filter.findHash(Values.hash(filter, chunk.getPrimitiveType().getPrimitiveTypeName(), (JsonNode) values.get(k))));
                }
            }
            return JSON.writeValueAsString(answer);
        } finally {
            reader.close();
        }
    }

    /** Which row groups (by index) survive {@code column = value} when only Bloom filters may prune. */
    public static String surviving(String file, String accessText, String column, String valueText) throws Exception {
        JsonNode value = JSON.readTree(valueText);
        ParquetFileReader plain = open(file, accessText, null);
        List all;
        PrimitiveType.PrimitiveTypeName type;
        try {
            all = plain.getRowGroups();
            type = plain.getFileMetaData().getSchema().getColumnDescription(column.split("\\.")).getPrimitiveType().getPrimitiveTypeName();
        } finally {
            plain.close();
        }
        ParquetFileReader reader = open(file, accessText, equal(type, column, value));
        try {
            ArrayNode answer = JSON.createArrayNode();
            List kept = reader.getRowGroups();
            for (int i = 0; i < kept.size(); i++) {
                for (int k = 0; k < all.size(); k++) {
                    if (((BlockMetaData) all.get(k)).getRowIndexOffset() == ((BlockMetaData) kept.get(i)).getRowIndexOffset()) {
                        answer.add(k);
                    }
                }
            }
            return JSON.writeValueAsString(answer);
        } finally {
            reader.close();
        }
    }

    private static FilterPredicate equal(PrimitiveType.PrimitiveTypeName type, String column, JsonNode value) {
        if (type == PrimitiveType.PrimitiveTypeName.INT32) {
            return FilterApi.eq(FilterApi.intColumn(column), Integer.valueOf(Values.asInt(value)));
        } else if (type == PrimitiveType.PrimitiveTypeName.INT64) {
            return FilterApi.eq(FilterApi.longColumn(column), Long.valueOf(Values.asLong(value)));
        } else if (type == PrimitiveType.PrimitiveTypeName.FLOAT) {
            return FilterApi.eq(FilterApi.floatColumn(column), Float.valueOf(Values.asFloat(value)));
        } else if (type == PrimitiveType.PrimitiveTypeName.DOUBLE) {
            return FilterApi.eq(FilterApi.doubleColumn(column), Double.valueOf(Values.asDouble(value)));
        }
        return FilterApi.eq(FilterApi.binaryColumn(column), Binary.fromConstantByteArray(Values.asBytes(value)));
    }

    /** What parquet-java sees of a file: schema, encryption, and per column chunk its encodings and filter; "hidden" where it lacks the key. */
    public static String describe(String file, String accessText) throws Exception {
        ParquetFileReader reader = open(file, accessText, null);
        try {
            ObjectNode answer = JSON.createObjectNode();
            answer.put("schema", reader.getFileMetaData().getSchema().toString());
            answer.put("created_by", reader.getFileMetaData().getCreatedBy());
            answer.put("encryption", String.valueOf(reader.getFileMetaData().getEncryptionType()));
            ArrayNode groups = answer.putArray("row_groups");
            List blocks = reader.getFooter().getBlocks();
            for (int i = 0; i < blocks.size(); i++) {
                BlockMetaData block = (BlockMetaData) blocks.get(i);
                ObjectNode group = groups.addObject();
                group.put("rows", block.getRowCount());
                group.put("ordinal", block.getOrdinal());
                ArrayNode columns = group.putArray("columns");
                for (int k = 0; k < block.getColumns().size(); k++) {
                    describe((ColumnChunkMetaData) block.getColumns().get(k), columns.addObject());
                }
            }
            return JSON.writeValueAsString(answer);
        } finally {
            reader.close();
        }
    }

    private static void describe(ColumnChunkMetaData chunk, ObjectNode node) {
        node.put("path", chunk.getPath().toDotString());
        node.put("own_metadata", chunk.isEncrypted()); // sealed under a key of its own
        try {
            node.put("codec", chunk.getCodec().name());
            node.put("values", chunk.getValueCount());
            node.put("encodings", chunk.getEncodings().toString());
            node.put("dictionary", chunk.hasDictionaryPage());
            node.put("pages_v2", chunk.getEncodingStats() != null && chunk.getEncodingStats().usesV2Pages());
            node.put("filter_offset", chunk.getBloomFilterOffset());
            node.put("filter_length", chunk.getBloomFilterLength());
            node.put("hidden", false);
        } catch (ParquetCryptoRuntimeException e) {
            node.put("hidden", true);
        }
    }

    /** Key tools: wraps the key encryption keys of every file in the folder with the newest master keys. */
    public static void rotate(String folder, String propertiesText) throws Exception {
        KeyToolkit.rotateMasterKeys(path(folder).toString(), Keys.configuration(JSON.readTree(propertiesText)));
    }

    private static ColumnChunkMetaData chunk(BlockMetaData block, String column) {
        ColumnPath path = ColumnPath.fromDotString(column);
        for (int i = 0; i < block.getColumns().size(); i++) {
            ColumnChunkMetaData chunk = (ColumnChunkMetaData) block.getColumns().get(i);
            if (chunk.getPath().equals(path)) {
                return chunk;
            }
        }
        throw new IllegalArgumentException("no column " + column);
    }

    private static ParquetFileReader open(String file, String accessText, FilterPredicate predicate) throws Exception {
        JsonNode access = JSON.readTree(accessText);
        Configuration conf = Keys.configuration(access.get("properties"));
        ParquetReadOptions.Builder options = HadoopReadOptions.builder(conf, path(file));
        if (Keys.has(access, "keys")) {
            options.withDecryption(Keys.decryption(access.get("keys")));
        }
        if (predicate != null) {
            options.withRecordFilter(FilterCompat.get(predicate));
            options.useStatsFilter(false).useDictionaryFilter(false).useColumnIndexFilter(false).useBloomFilter(true);
        }
        return ParquetFileReader.open(HadoopInputFile.fromPath(path(file), conf), options.build());
    }

    private static Path path(String file) {
        return new Path(new File(file).toURI());
    }
}
