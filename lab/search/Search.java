// SPDX-License-Identifier: Apache-2.0

import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * A search server on Lucene: workers that have a part of the corpus each, and a coordinator.
 *
 * <pre>
 * Search index FOLDER PARTS DOCUMENTS                  FOLDER/0, FOLDER/1, …
 * Search worker PORT FOLDER/0 HAZARD EVERY LOG         see Hazard
 * Search coordinator PORT WORKER-PORT…
 * </pre>
 */
public final class Search {
    private Search() {}

    public static void main(String[] words) throws IOException {
        switch (words.length == 0 ? "" : words[0]) {
            case "index" -> {
                int parts = Integer.parseInt(words[2]);
                for (int part = 0; part < parts; part++) {
                    Path folder = Path.of(words[1], Integer.toString(part));
                    Worker.index(folder, part, parts, Integer.parseInt(words[3]));
                }
            }
            case "worker" -> {
                Hazard hazard = new Hazard(words[3], Integer.parseInt(words[4]), Path.of(words[5]));
                Worker.serve(Integer.parseInt(words[1]), Path.of(words[2]), hazard);
            }
            case "coordinator" -> {
                int[] ports = Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray();
                Coordinator.serve(ports[0], Arrays.copyOfRange(ports, 1, ports.length));
            }
            default -> throw new IllegalArgumentException("index, worker or coordinator");
        }
    }
}
