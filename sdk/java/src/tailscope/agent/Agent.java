// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import tailscope.Tailscope;

/**
 * Makes spans of methods in a program whose source nobody changes: {@code
 * -javaagent:tailscope.jar=span=org.example.Server.answer}. Needs JDK 24, whose own API it reads
 * and writes classes with. What goes wrong is said on the error output; the program runs on without
 * spans.
 */
public final class Agent {
    private static final int CLASS_FILES_SINCE = 24;

    /** When the program starts. */
    public static void premain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    /** In a program that runs already. */
    public static void agentmain(String options, Instrumentation instrumentation) {
        start(options, instrumentation);
    }

    private static void start(String options, Instrumentation instrumentation) {
        if (Runtime.version().feature() < CLASS_FILES_SINCE) {
            say("the agent needs JDK " + CLASS_FILES_SINCE + " or newer; there will be no spans");
            return;
        }
        if (Tailscope.problem() != null) {
            say("no spans can be recorded here: " + Tailscope.problem());
            return;
        }
        List<Target> targets;
        try {
            targets = Target.parse(options);
        } catch (IllegalArgumentException e) {
            say(e.getMessage() + "; there will be no spans. The form is " + Target.FORM);
            return;
        }
        instrumentation.addTransformer(new Transformer(targets), true);
        for (Class<?> type : instrumentation.getAllLoadedClasses()) {
            if (targets.stream().anyMatch(target -> target.className().equals(type.getName()))) {
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
        private final List<Target> targets;
        private final Set<String> classes;

        Transformer(List<Target> targets) {
            this.targets = targets;
            classes = targets.stream()
                .map(target -> target.className().replace('.', '/'))
                .collect(Collectors.toSet());
        }

        @Override
        public byte[] transform(
            ClassLoader loader, String name, Class<?> was, ProtectionDomain domain, byte[] bytes) {
            if (name == null || !classes.contains(name)) {
                return null;
            }
            try {
                return weave(loader, name.replace('/', '.'), bytes);
            } catch (Throwable e) {
                // The JVM would take the class as it is and say nothing.
                say("no spans in " + name.replace('/', '.') + ": " + e);
                return null;
            }
        }

        private byte[] weave(ClassLoader loader, String name, byte[] bytes)
            throws ClassNotFoundException {
            String sdk = Tailscope.class.getName();
            if (loader == null || Class.forName(sdk, false, loader) != Tailscope.class) {
                say("no spans in " + name + ": its class loader does not see the agent's jar");
                return null;
            }
            List<Target> ofClass =
                targets.stream().filter(target -> target.className().equals(name)).toList();
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
