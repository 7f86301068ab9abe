import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;

/**
 * A known number of requests to a ZooKeeper, from several clients at a time: ZooLoad PORT CLIENTS
 * ROUNDS. Each client opens a session, creates a node, and then, in each round, writes it and reads
 * it twice; it deletes the node and closes the session.
 */
public final class ZooLoad {
    private static final int TIMEOUT_MS = 60_000; // idle for long enough, it would ping

    private static void client(int port, int number, int rounds) {
        try {
            CountDownLatch connected = new CountDownLatch(1);
            Watcher watcher = event -> {
                if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                    connected.countDown();
                }
            };
            try (ZooKeeper zoo = new ZooKeeper("127.0.0.1:" + port, TIMEOUT_MS, watcher)) {
                connected.await();
                String node = "/client" + number;
                zoo.create(node, new byte[64], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                for (int i = 0; i < rounds; i++) {
                    zoo.setData(node, new byte[64], -1);
                    zoo.getData(node, false, null);
                    zoo.getData(node, false, null);
                }
                zoo.delete(node, -1);
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int port = Integer.parseInt(arguments[0]);
        int clients = Integer.parseInt(arguments[1]);
        int rounds = Integer.parseInt(arguments[2]);
        Thread[] threads = new Thread[clients];
        for (int i = 0; i < clients; i++) {
            int number = i;
            threads[i] = new Thread(() -> client(port, number, rounds));
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        // A session begins and ends with a write each, and so does a node.
        int writes = clients * (4 + rounds);
        int reads = clients * 2 * rounds;
        System.out.println("{\"writes\": " + writes + ", \"reads\": " + reads + "}");
    }
}
