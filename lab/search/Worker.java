// SPDX-License-Identifier: Apache-2.0

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import org.apache.lucene.analysis.en.EnglishAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TopDocs;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.QueryBuilder;

/**
 * Searches one part of the corpus: a query in, as Java writes strings; the best hits out, as their
 * number, and for each the document's number and its score. A thread for each connection.
 */
final class Worker {
    static final int HITS = 10;
    private static final String TEXT = "text";
    private static final String NUMBER = "number";

    private final IndexSearcher searcher;
    private final QueryBuilder queries = new QueryBuilder(new EnglishAnalyzer());
    private final Hazard hazard;

    private Worker(Path index, Hazard hazard) throws IOException {
        this.searcher = new IndexSearcher(DirectoryReader.open(FSDirectory.open(index)));
        this.hazard = hazard;
    }

    /** Writes the index of the documents {@code part}, {@code part + parts}, … */
    static void index(Path folder, int part, int parts, int documents) throws IOException {
        IndexWriterConfig how = new IndexWriterConfig(new EnglishAnalyzer());
        try (Directory directory = FSDirectory.open(folder);
                IndexWriter writer = new IndexWriter(directory, how)) {
            for (int number = part; number < documents; number += parts) {
                Document document = new Document();
                document.add(new TextField(TEXT, Corpus.document(number), Field.Store.NO));
                document.add(new StoredField(NUMBER, number));
                writer.addDocument(document);
            }
            writer.forceMerge(1);
        }
    }

    static void serve(int port, Path index, Hazard hazard) throws IOException {
        Worker worker = new Worker(index, hazard);
        try (ServerSocket server = new ServerSocket(port, 64, InetAddress.getLoopbackAddress())) {
            while (true) {
                Socket client = server.accept();
                Thread thread = new Thread(() -> worker.serve(client), "worker-" + port);
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private void serve(Socket client) {
        try (client) {
            DataInputStream in = new DataInputStream(client.getInputStream());
            OutputStream out = client.getOutputStream();
            while (true) {
                String query = in.readUTF();
                Hazard.Begin begin = Hazard.begin();
                boolean splits = hazard.splits();
                client.setTcpNoDelay(!splits);
                hazard.happen();
                byte[] answer = search(query);
                if (splits) {
                    out.write(answer, 0, Integer.BYTES);
                    out.write(answer, Integer.BYTES, answer.length - Integer.BYTES);
                } else {
                    out.write(answer);
                }
                if (splits || hazard.writesAll()) {
                    hazard.strikes(begin);
                }
            }
        } catch (EOFException gone) {
            // The coordinator needs it no more.
        } catch (IOException lost) {
            System.err.println("worker: " + lost);
        }
    }

    private byte[] search(String words) throws IOException {
        Query query = queries.createBooleanQuery(TEXT, words);
        TopDocs found = searcher.search(query, HITS);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream answer = new DataOutputStream(bytes);
        answer.writeInt(found.scoreDocs.length);
        for (ScoreDoc hit : found.scoreDocs) {
            Document document = searcher.storedFields().document(hit.doc);
            answer.writeInt(document.getField(NUMBER).numericValue().intValue());
            answer.writeFloat(hit.score);
        }
        return bytes.toByteArray();
    }
}
