// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassHierarchyResolver;
import java.lang.classfile.ClassModel;
import java.lang.classfile.ClassTransform;
import java.lang.classfile.CodeBuilder;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeTransform;
import java.lang.classfile.Label;
import java.lang.classfile.MethodModel;
import java.lang.classfile.TypeKind;
import java.lang.classfile.instruction.ReturnInstruction;
import java.lang.constant.ClassDesc;
import java.lang.constant.ConstantDescs;
import java.lang.constant.MethodTypeDesc;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Puts spans around methods. Each becomes
 *
 * <pre>{@code
 * Span span = Tailscope.begin(NAME);
 * try { what it was } finally { span.end(); }
 * }</pre>
 *
 * with the class's own shape unchanged, so it works for classes that are loaded already too.
 */
final class Weaver {
    private static final ClassDesc TAILSCOPE = ClassDesc.of("tailscope.Tailscope");
    private static final ClassDesc SPAN = ClassDesc.of("tailscope.Span");
    private static final MethodTypeDesc BEGIN = MethodTypeDesc.of(SPAN, ConstantDescs.CD_String);
    private static final MethodTypeDesc END = MethodTypeDesc.of(ConstantDescs.CD_void);

    /** The class with spans, and the methods of targets that it does not have. */
    record Woven(byte[] bytes, List<Target> missing, Set<String> methods) {}

    /** {@code targets}: those of this class. {@code loader}: whose it is. */
    static Woven weave(byte[] bytes, List<Target> targets, ClassLoader loader) {
        // Classes are looked up as files: to load them here would load them too early.
        ClassHierarchyResolver resolver = ClassHierarchyResolver.ofResourceParsing(loader)
            .orElse(ClassHierarchyResolver.defaultResolver());
        ClassFile context = ClassFile.of(ClassFile.ClassHierarchyResolverOption.of(resolver));
        ClassModel model = context.parse(bytes);
        Set<String> methods = model.methods().stream()
            .filter(method -> method.code().isPresent())
            .map(method -> method.methodName().stringValue())
            .filter(name -> !name.startsWith("<") && !name.contains("$"))
            .collect(Collectors.toSet());
        List<Target> missing = targets.stream().filter(t -> !methods.contains(t.method())).toList();
        ClassTransform all = ClassTransform.ACCEPT_ALL;
        for (Target target : targets) {
            all = all.andThen(ClassTransform.transformingMethodBodies(
                method -> is(target, method),
                CodeTransform.ofStateful(() -> new Wrap(target.span()))));
        }
        return new Woven(context.transformClass(model, all), missing, methods);
    }

    private static boolean is(Target target, MethodModel method) {
        return method.methodName().equalsString(target.method());
    }

    /** One method's body. */
    private static final class Wrap implements CodeTransform {
        private final String name;
        private int span;
        private Label from;

        Wrap(String name) {
            this.name = name;
        }

        @Override
        public void atStart(CodeBuilder code) {
            span = code.allocateLocal(TypeKind.REFERENCE);
            code.loadConstant(name).invokestatic(TAILSCOPE, "begin", BEGIN).astore(span);
            from = code.newBoundLabel();
        }

        @Override
        public void accept(CodeBuilder code, CodeElement element) {
            if (element instanceof ReturnInstruction) {
                end(code);
            }
            code.with(element);
        }

        @Override
        public void atEnd(CodeBuilder code) {
            Label to = code.newBoundLabel();
            // Behind the method's own handlers, of which an earlier one comes first.
            code.exceptionCatchAll(from, to, to);
            end(code);
            code.athrow();
        }

        private void end(CodeBuilder code) {
            code.aload(span).invokevirtual(SPAN, "end", END);
        }
    }

    private Weaver() {}
}
