// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.List;
import java.util.TreeSet;
import tailscope.Place;
import tailscope.Tailscope;

/**
 * Makes spans of methods in a program whose source nobody changes ({@code
 * -javaagent:tailscope.jar=span=org.example.Server.answer}), and has methods and loops say where
 * they are ({@code place=org.example.*}). Needs JDK 24, whose own API it reads and writes classes
 * with. What goes wrong is said on the error output; the program runs on without.
 */
public final class Agent {
    private static final int CLASS_FILES_SINCE = 24;
    private static final String NOTHING = "there will be no spans and no places";

    /** When the program starts. */
    public static void premain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    /** In a program that runs already. */
    public static void agentmain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    private static void start(String argument, Instrumentation instrumentation) {
        if (Runtime.version().feature() < CLASS_FILES_SINCE) {
            say("the agent needs JDK " + CLASS_FILES_SINCE + " or newer; " + NOTHING);
            return;
        }
        if (Tailscope.problem() != null) {
            say(NOTHING + ", as none can be recorded here: " + Tailscope.problem());
            return;
        }
        Options options;
        try {
            options = Options.parse(argument);
        } catch (IllegalArgumentException e) {
            say(e.getMessage() + "; " + NOTHING + ". The form is " + Options.FORM);
            return;
        }
        instrumentation.addTransformer(new Transformer(options), true);
        for (Class<?> type : instrumentation.getAllLoadedClasses()) {
            // Hidden classes have names like those that they were made for.
            if (options.touches(type.getName()) && instrumentation.isModifiableClass(type)) {
                try {
                    instrumentation.retransformClasses(type);
                } catch (Exception | LinkageError e) {
                    say(type.getName() + " is loaded already and can't be changed: " + e);
                }
            }
        }
    }

    private static void say(String text) {
        System.err.println("tailscope: " + text);
    }

    /** Changes classes as they are loaded. */
    private static final class Transformer implements ClassFileTransformer {
        private final Options options;

        Transformer(Options options) {
            this.options = options;
        }

        @Override
        public byte[] transform(
            ClassLoader loader, String path, Class<?> was, ProtectionDomain domain, byte[] bytes) {
            String name = path == null ? "" : path.replace('/', '.');
            if (!options.touches(name)) {
                return null;
            }
            byte[] changed = null;
            // What is thrown here, the JVM would take for "as it is", and say nothing.
            try {
                if (!seesUs(loader)) {
                    say("no spans and no places in " + name
                        + ": its class loader does not see the agent's jar");
                    return null;
                }
                changed = weave(loader, name, bytes);
            } catch (Throwable e) {
                say("no spans in " + name + ": " + e);
            }
            try {
                if (options.isPlace(name)) {
                    byte[] before = changed == null ? bytes : changed;
                    changed = Marker.mark(before, name, loader, Place::number);
                }
            } catch (Throwable e) {
                say("no places in " + name + ": " + e);
            }
            return changed;
        }

        private static boolean seesUs(ClassLoader loader) {
            try {
                String sdk = Tailscope.class.getName();
                return loader != null && Class.forName(sdk, false, loader) == Tailscope.class;
            } catch (ClassNotFoundException e) {
                return false;
            }
        }

        private byte[] weave(ClassLoader loader, String name, byte[] bytes) {
            List<Target> ofClass = options.spansIn(name);
            if (ofClass.isEmpty()) {
                return null;
            }
            Weaver.Woven woven = Weaver.weave(bytes, ofClass, loader);
            for (Target target : woven.missing()) {
                say(name + " has no method " + target.method() + " with code; it has "
                    + String.join(", ", new TreeSet<>(woven.methods())));
            }
            return woven.missing().size() == ofClass.size() ? null : woven.bytes();
        }
    }

    private Agent() {}
}
