// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.util.ArrayList;
import java.util.List;

/** What an agent is told to do: methods that become spans, and classes that say where they are. */
record Options(List<Target> spans, List<String> places) {
    static final String FORM = "span=[NAME:]PACKAGE.CLASS.METHOD,place=PACKAGE.*,place=CLASS.*";

    /**
     * What this agent runs on, or is: their methods are no requests, a span in them might never end,
     * and a mark in them would come to itself.
     */
    private static final List<String> NOT_OURS =
        List.of("java.", "javax.", "jdk.", "sun.", "tailscope.");

    private static final String ALL = ".*";

    /** From the agent's argument. Says in its exception what is wrong. */
    static Options parse(String argument) {
        String text = argument == null ? "" : argument.strip();
        if (text.isEmpty()) {
            throw new IllegalArgumentException("the options name no span and no place");
        }
        List<Target> spans = new ArrayList<>();
        List<String> places = new ArrayList<>();
        for (String item : text.split(",")) {
            String place = item.strip();
            // jcmd, which loads an agent into a program that runs, takes a '=' for its own: so what
            // is meant shows without it, too.
            if (place.startsWith("place=") || place.endsWith(ALL)) {
                places.add(prefix(place.replaceFirst("^place=", "")));
            } else {
                spans.add(Target.parse(place.replaceFirst("^span=", "")));
            }
        }
        return new Options(spans, places);
    }

    /** A package or class, of which everything in it is meant. */
    private static String prefix(String text) {
        String name = text.endsWith(ALL) ? text.substring(0, text.length() - ALL.length()) : "";
        boolean isName = name.chars().allMatch(c -> c == '.' || Character.isJavaIdentifierPart(c));
        if (name.isEmpty() || !isName) {
            throw new IllegalArgumentException(
                "'" + text + "' is no package and no class with '.*' behind it");
        }
        refuseNotOurs(name);
        return name;
    }

    static void refuseNotOurs(String name) {
        if (NOT_OURS.stream().anyMatch((name + ".")::startsWith)) {
            throw new IllegalArgumentException("'" + name + "' belongs to Java or to Tailscope");
        }
    }

    /** The spans in a class, by its name with dots. */
    List<Target> spansIn(String type) {
        return spans.stream().filter(target -> target.className().equals(type)).toList();
    }

    /** Whether a class is to say where it is. */
    boolean isPlace(String type) {
        return places.stream().anyMatch(
            name -> type.equals(name) || type.startsWith(name + ".") || type.startsWith(name + "$"));
    }

    boolean touches(String type) {
        return isPlace(type) || spans.stream().anyMatch(t -> t.className().equals(type));
    }
}
