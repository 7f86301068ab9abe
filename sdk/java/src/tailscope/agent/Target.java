// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.util.ArrayList;
import java.util.List;

/** Methods that become spans: all of that name in a class, and none of its subclasses'. */
record Target(String className, String method, String span) {
    static final String FORM = "span=[NAME:]PACKAGE.CLASS.METHOD[,[NAME:]PACKAGE.CLASS.METHOD…]";

    /**
     * What this agent runs on, or is: their methods are no requests, and a span in them might never
     * end.
     */
    private static final List<String> NOT_OURS =
        List.of("java.", "javax.", "jdk.", "sun.", "tailscope.");

    /** The targets in an agent's options. Says in its exception what is wrong. */
    static List<Target> parse(String options) {
        String text = options == null ? "" : options.strip();
        if (text.isEmpty()) {
            throw new IllegalArgumentException("the options name no span");
        }
        List<Target> targets = new ArrayList<>();
        for (String item : text.split(",")) {
            String place = item.strip();
            // jcmd, which loads an agent into a program that runs, takes a '=' for its own.
            targets.add(one(place.startsWith("span=") ? place.substring(5) : place));
        }
        return targets;
    }

    private static Target one(String text) {
        int colon = text.indexOf(':');
        String place = text.substring(colon + 1);
        int dot = place.lastIndexOf('.');
        if (dot <= 0 || dot == place.length() - 1 || colon == 0) {
            throw new IllegalArgumentException("'" + text + "' is no method of a class");
        }
        String type = place.substring(0, dot);
        String method = place.substring(dot + 1);
        if (!method.chars().allMatch(Character::isJavaIdentifierPart)) {
            throw new IllegalArgumentException("'" + method + "' can't become a span");
        }
        if (NOT_OURS.stream().anyMatch(place::startsWith)) {
            throw new IllegalArgumentException("'" + type + "' belongs to Java or to Tailscope");
        }
        String simple = type.substring(Math.max(type.lastIndexOf('.'), type.lastIndexOf('$')) + 1);
        String span = colon > 0 ? text.substring(0, colon) : simple + "." + method;
        return new Target(type, method, span);
    }
}
