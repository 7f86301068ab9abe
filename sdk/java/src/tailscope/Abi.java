// SPDX-License-Identifier: MIT
package tailscope;

/**
 * The memory that this process shares with the recorder and the kernel, as sdk/c/tailscope_abi.h
 * lays it out, where the words on each field are. All of Java's side of it is here. A test compiles
 * each constant's comment, which is C, against that header: a new constant needs one too.
 */
final class Abi {
    static final int ABI = 4; // TS_ABI
    static final long MAGIC = 0x31656c6174L; // TS_MAGIC
    static final int CAUSES = 14; // TS_CAUSES
    static final int BLAMED_CAUSES = 0x17eb; // TS_BLAMED_CAUSES

    static final int METERS = 2048; // TS_METERS
    static final int METER_BYTES = 768; // sizeof(struct ts_meter)
    static final int METER_SEQ = 0; // offsetof(struct ts_meter, seq)
    static final int METER_TID = 4; // offsetof(struct ts_meter, tid)
    static final int METER_OPEN = 20; // offsetof(struct ts_meter, open)
    static final int METER_NS = 24; // offsetof(struct ts_meter, totals.ns)
    static final int METER_N = 136; // offsetof(struct ts_meter, totals.n)
    static final int METER_KERNEL_TID = 192; // offsetof(struct ts_meter, kernel_tid)
    static final int METER_SPANS = 200; // offsetof(struct ts_meter, spans)
    static final int METER_RECENT = 256; // offsetof(struct ts_meter, recent)

    static final int EPISODES = 4; // TS_EPISODES
    static final int RECENT_BYTES = 32; // sizeof(struct ts_recent)
    static final int EPISODE_BYTES = 8; // sizeof(struct ts_episode)
    static final int EPISODE_NS = 0; // offsetof(struct ts_episode, ns)
    static final int EPISODE_N = 4; // offsetof(struct ts_episode, n)
    static final int EPISODE_WHO = 6; // offsetof(struct ts_episode, who)

    static final int ROW_BYTES = 56; // sizeof(struct ts_row)
    static final int ROW_BEGIN = 0; // offsetof(struct ts_row, begin)
    static final int ROW_WALL = 8; // offsetof(struct ts_row, wall)
    static final int ROW_ID = 16; // offsetof(struct ts_row, id)
    // Causes, CPU, name and flags are stored as one word: so many bits from its begin.
    static final int ROW_WORD = 32; // offsetof(struct ts_row, causes)
    static final int WORD_CPU = 16; // 8 * (offsetof(struct ts_row, cpu) - offsetof(struct ts_row, causes))
    static final int WORD_NAME = 32; // 8 * (offsetof(struct ts_row, name) - offsetof(struct ts_row, causes))
    static final int WORD_FLAGS = 40; // 8 * (offsetof(struct ts_row, flags) - offsetof(struct ts_row, causes))
    static final int ROW_QUEUE_NS = 40; // offsetof(struct ts_row, queue_ns)
    // With what is reserved behind it, one word too.
    static final int ROW_KEPT = 48; // offsetof(struct ts_row, kept)
    static final int ROW_HAS_ID = 1; // TS_ROW_HAS_ID
    static final int ROW_HAS_COUNTS = 2; // TS_ROW_HAS_COUNTS
    static final int SHARE_BYTES = 16; // sizeof(struct ts_share)
    static final int SHARE_NS = 0; // offsetof(struct ts_share, ns)
    static final int SHARE_N = 8; // offsetof(struct ts_share, n)
    static final int SHARE_WHO = 12; // offsetof(struct ts_share, who)
    static final int ROW_MAX = 336; // TS_SDK_ROW_MAX

    static final int COUNTERS = 6; // TS_COUNTERS
    static final int EVENT_BYTES = 32; // sizeof(struct ts_event)
    static final int EVENT_TYPE = 0; // offsetof(struct ts_event, type)
    static final int EVENT_CONFIG = 8; // offsetof(struct ts_event, config)
    static final int EVENT_CONFIG1 = 16; // offsetof(struct ts_event, config1)
    static final int EVENT_CONFIG2 = 24; // offsetof(struct ts_event, config2)
    static final int COUNTING_GROUP = 0; // offsetof(struct ts_counting, group)
    static final int COUNTING_COUNT = 4; // offsetof(struct ts_counting, count)
    static final int COUNTING_EVENT = 8; // offsetof(struct ts_counting, event)
    static final int COUNTING_REFUSED = 200; // offsetof(struct ts_counting, refused)
    static final int COUNTS_BYTES = 8; // sizeof(struct ts_counts)
    // Group and which are known are stored as one word.
    static final int COUNTS_KNOWN = 16; // 8 * (offsetof(struct ts_counts, known) - offsetof(struct ts_counts, group))

    static final int REGION_BYTES = 8421376; // TS_REGION_BYTES
    static final int REGION_HEAD = 32768; // TS_REGION_HEAD
    static final int REGION_MAGIC = 0; // offsetof(struct ts_region, magic)
    static final int REGION_ABI = 8; // offsetof(struct ts_region, abi)
    static final int REGION_TURN = 12; // offsetof(struct ts_region, turn)
    static final int REGION_SAMPLE = 16; // offsetof(struct ts_region, sample)
    static final int REGION_HEARTBEAT = 24; // offsetof(struct ts_region, heartbeat)
    static final int REGION_OVERDUE = 32; // offsetof(struct ts_region, heartbeat_overdue)
    static final int REGION_LOST = 40; // offsetof(struct ts_region, lost)
    static final int REGION_CHUNK_STATE = 56; // offsetof(struct ts_region, chunk_state)
    static final int REGION_NAMES = 8248; // offsetof(struct ts_region, names)
    static final int REGION_RETENTION = 24568; // offsetof(struct ts_region, retention)
    static final int REGION_COUNTING = 28664; // offsetof(struct ts_region, counting)

    static final int CHUNKS = 2048; // TS_CHUNKS
    static final int CHUNK_BYTES = 4096; // TS_CHUNK_BYTES
    static final int CHUNK_USED = 0; // offsetof(struct ts_chunk, used)
    static final int CHUNK_TID = 4; // offsetof(struct ts_chunk, tid)
    static final int CHUNK_ROWS = 8; // offsetof(struct ts_chunk, rows)
    static final int CHUNK_FREE = 0; // TS_CHUNK_FREE
    static final int CHUNK_OWNED = 1; // TS_CHUNK_OWNED
    static final int CHUNK_FULL = 2; // TS_CHUNK_FULL

    static final int NAMES = 255; // TS_NAMES
    static final int NAME_BYTES = 64; // sizeof(struct ts_name)
    static final int NAME_LENGTH = 0; // offsetof(struct ts_name, length)
    static final int NAME_TEXT = 4; // offsetof(struct ts_name, text)
    static final int NAME_LONGEST = 59; // TS_NAME_BYTES - 5
    static final int NAME_BUSY = -1; // (int)TS_NAME_BUSY

    static final int RETENTION_BYTES = 16; // sizeof(struct ts_retention)
    static final int RETENTION_ALWAYS_FROM = 0; // offsetof(struct ts_retention, always_from)
    static final int RETENTION_OTHERS = 8; // offsetof(struct ts_retention, others)

    static final int ANSWER_BYTES = 16; // sizeof(struct ts_answer)
    static final int ANSWER_MAGIC = 0; // offsetof(struct ts_answer, magic)
    static final int ANSWER_ABI = 8; // offsetof(struct ts_answer, abi)
    static final int ANSWER_STATUS = 12; // offsetof(struct ts_answer, status)
    static final int ACCEPTED = 0; // TS_ACCEPTED
    static final int NOT_WATCHED = 1; // TS_NOT_WATCHED

    static final String CHANNEL_FILE = "tailscope-channels"; // TS_CHANNEL_FILE
    static final long CHANNEL_MAGIC = 0x316e6e616863L; // TS_CHANNEL_MAGIC
    static final int CHANNELS_BYTES = 16384; // sizeof(struct ts_channels)
    static final int CHANNELS_MAGIC = 0; // offsetof(struct ts_channels, magic)
    static final int CHANNELS_TAKEN = 8; // offsetof(struct ts_channels, taken)
    static final int CHANNELS_SLOT = 64; // offsetof(struct ts_channels, slot)
    static final int CHANNEL_SLOTS = 255; // TS_CHANNEL_SLOTS
    static final int CHANNEL_BYTES = 64; // sizeof(struct ts_channel)
    static final int CHANNEL_VALUE = 0; // offsetof(struct ts_channel, value)
    static final int CHANNEL_KIND = 8; // offsetof(struct ts_channel, kind)
    static final int CHANNEL_NAME = 16; // offsetof(struct ts_channel, name)
    static final int CHANNEL_NAME_LONGEST = 47; // TS_CHANNEL_NAME - 1
    static final int COUNTER = 1; // TS_COUNTER
    static final int TAG = 2; // TS_TAG
    static final int PLACE = 4; // TS_PLACE

    static final String PLACES_FILE = "tailscope-places"; // TS_PLACES_FILE
    static final long PLACES_MAGIC = 0x316563616c70L; // TS_PLACES_MAGIC
    static final int PLACES_BYTES = 16777216; // TS_PLACES_BYTES
    static final int PLACES_AT = 0; // offsetof(struct ts_places, magic)
    static final int PLACES_USED = 8; // offsetof(struct ts_places, used)
    static final int PLACES_TEXT = 16; // sizeof(struct ts_places)
    static final int PLACE_LONGEST = 511; // TS_PLACE_NAME - 1

    static final String SOCKET = "/run/tailscope/sdk.sock"; // TS_SOCKET
    static final int RECORDERS = 2; // TS_RECORDERS
    static final String SECOND = ".second"; // TS_SECOND

    /** The part of 2^32 that a code of {@code ts_retention.others} stands for. */
    static long keepProbability(int code) {
        return (long) (code & 2047) << (code >> 11 & 31);
    }

    /** Where a meter has the latest large episodes of a cause that blames somebody. */
    static int recent(int cause) {
        return METER_RECENT + cause * RECENT_BYTES;
    }

    private Abi() {}
}
