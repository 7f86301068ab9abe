// SPDX-License-Identifier: MIT
package tailscope.agent;

/** Methods that become spans: all of that name in a class, and none of its subclasses'. */
record Target(String className, String method, String span) {
    /** From {@code [NAME:]PACKAGE.CLASS.METHOD}. Says in its exception what is wrong. */
    static Target parse(String text) {
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
        Options.refuseNotOurs(type);
        String simple = type.substring(Math.max(type.lastIndexOf('.'), type.lastIndexOf('$')) + 1);
        String span = colon > 0 ? text.substring(0, colon) : simple + "." + method;
        return new Target(type, method, span);
    }
}
