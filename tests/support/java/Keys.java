package bloomseal.harness;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.parquet.crypto.ColumnDecryptionProperties;
import org.apache.parquet.crypto.ColumnEncryptionProperties;
import org.apache.parquet.crypto.DecryptionKeyRetriever;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.FileEncryptionProperties;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCipher;
import org.apache.parquet.hadoop.metadata.ColumnPath;

/** Encryption and decryption properties from JSON: binaries are hexadecimal, columns dotted paths. */
public final class Keys implements DecryptionKeyRetriever {
    private final JsonNode byId;

    private Keys(JsonNode byId) {
        this.byId = byId;
    }

    public byte[] getKey(byte[] keyMetadata) throws KeyAccessDeniedException {
        JsonNode key = byId.get(Values.hex(keyMetadata));
        if (key == null) {
            throw new KeyAccessDeniedException("no key for this key metadata");
        }
        return Values.unhex(key.textValue());
    }

    public static FileEncryptionProperties encryption(JsonNode spec) {
        FileEncryptionProperties.Builder builder = FileEncryptionProperties.builder(bytes(spec, "footer_key"));
        builder.withAlgorithm(ParquetCipher.valueOf(spec.get("algorithm").textValue()));
        if (has(spec, "footer_key_metadata")) {
            builder.withFooterKeyMetadata(bytes(spec, "footer_key_metadata"));
        }
        if (spec.get("plaintext_footer").booleanValue()) {
            builder.withPlaintextFooter();
        }
        if (has(spec, "aad_prefix")) {
            builder.withAADPrefix(bytes(spec, "aad_prefix"));
            if (!spec.get("store_aad_prefix").booleanValue()) {
                builder.withoutAADPrefixStorage();
            }
        }
        Map columns = new HashMap();
        Iterator names = spec.get("column_keys").fieldNames();
        while (names.hasNext()) {
            String name = (String) names.next();
            ColumnPath path = ColumnPath.fromDotString(name);
            ColumnEncryptionProperties.Builder column = ColumnEncryptionProperties.builder(path);
            if (has(spec.get("column_keys"), name)) {
                column.withKey(bytes(spec.get("column_keys"), name));
                if (has(spec.get("column_key_metadata"), name)) {
                    column.withKeyMetaData(bytes(spec.get("column_key_metadata"), name));
                }
            }
            columns.put(path, column.build());
        }
        if (!columns.isEmpty()) {
            builder.withEncryptedColumns(columns);
            if (spec.get("complete").booleanValue()) {
                builder.withCompleteColumnEncryption();
            }
        }
        return builder.build();
    }

    public static FileDecryptionProperties decryption(JsonNode spec) {
        FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder();
        if (has(spec, "footer_key")) {
            builder.withFooterKey(bytes(spec, "footer_key"));
        }
        Map columns = new HashMap();
        Iterator names = spec.get("column_keys").fieldNames();
        while (names.hasNext()) {
            String name = (String) names.next();
            ColumnPath path = ColumnPath.fromDotString(name);
            columns.put(path, ColumnDecryptionProperties.builder(path).withKey(bytes(spec.get("column_keys"), name)).build());
        }
        if (!columns.isEmpty()) {
            builder.withColumnKeys(columns);
        }
        if (spec.get("keys_by_id").size() > 0) {
            builder.withKeyRetriever(new Keys(spec.get("keys_by_id")));
        }
        if (has(spec, "aad_prefix")) {
            builder.withAADPrefix(bytes(spec, "aad_prefix"));
        }
        if (spec.get("plaintext_allowed").booleanValue()) {
            builder.withPlaintextFilesAllowed();
        }
        if (!spec.get("check_signature").booleanValue()) {
            builder.withoutFooterSignatureVerification();
        }
        return builder.build();
    }

    /** A Hadoop configuration that writes no checksum sidecars and finds the classes of this harness. */
    public static Configuration configuration(JsonNode properties) {
        Configuration conf = new Configuration(false);
        conf.setClassLoader(Keys.class.getClassLoader());
        conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
        if (properties != null) {
            Iterator names = properties.fieldNames();
            while (names.hasNext()) {
                String name = (String) names.next();
                conf.set(name, properties.get(name).textValue());
            }
        }
        return conf;
    }

    public static boolean has(JsonNode object, String name) {
        return object != null && object.get(name) != null && !object.get(name).isNull();
    }

    private static byte[] bytes(JsonNode object, String name) {
        return Values.unhex(object.get(name).textValue());
    }
}
