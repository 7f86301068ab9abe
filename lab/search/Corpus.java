// SPDX-License-Identifier: Apache-2.0

import java.util.Arrays;
import java.util.Random;

/**
 * Text that nobody wrote: words whose frequencies follow Zipf's law, as those of any language do. The
 * same numbers give the same text, on every machine.
 */
final class Corpus {
    private static final int WORDS = 20_000;
    private static final int LENGTH = 80;
    private static final String[] SYLLABLES = {
        "ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu", "pa", "re", "si", "to", "vu", "za"
    };
    /** How often a word is drawn that is so frequent or more, of the last one's count. */
    private static final double[] UP_TO = new double[WORDS];

    static {
        double sum = 0;
        for (int rank = 0; rank < WORDS; rank++) {
            sum += 1.0 / (rank + 1);
            UP_TO[rank] = sum;
        }
    }

    private Corpus() {}

    /** A document, by its number. */
    static String document(int number) {
        Random random = new Random(number);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < LENGTH; i++) {
            text.append(word(random)).append(' ');
        }
        return text.toString();
    }

    /** Two words that somebody may look for. */
    static String query(Random random) {
        return word(random) + " " + word(random);
    }

    private static String word(Random random) {
        int found = Arrays.binarySearch(UP_TO, random.nextDouble() * UP_TO[WORDS - 1]);
        int rank = Math.min(found < 0 ? -found - 1 : found, WORDS - 1);
        StringBuilder word = new StringBuilder();
        // Frequent words are short.
        for (int rest = rank + SYLLABLES.length; rest > 0; rest /= SYLLABLES.length) {
            word.append(SYLLABLES[rest % SYLLABLES.length]);
        }
        return word.toString();
    }
}
