// SPDX-License-Identifier: MIT
package tailscope.agent;

import java.lang.classfile.ClassFile;
import java.lang.classfile.ClassHierarchyResolver;
import java.lang.classfile.ClassModel;
import java.lang.classfile.ClassTransform;
import java.lang.classfile.CodeBuilder;
import java.lang.classfile.CodeElement;
import java.lang.classfile.CodeTransform;
import java.lang.classfile.Instruction;
import java.lang.classfile.Label;
import java.lang.classfile.MethodModel;
import java.lang.classfile.MethodTransform;
import java.lang.classfile.TypeKind;
import java.lang.classfile.instruction.BranchInstruction;
import java.lang.classfile.instruction.LabelTarget;
import java.lang.classfile.instruction.LineNumber;
import java.lang.classfile.instruction.LookupSwitchInstruction;
import java.lang.classfile.instruction.SwitchCase;
import java.lang.classfile.instruction.TableSwitchInstruction;
import java.lang.constant.ClassDesc;
import java.lang.constant.ConstantDescs;
import java.lang.constant.MethodTypeDesc;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;

/**
 * Has the methods of a class say where they are. Each begins with
 *
 * <pre>{@code Channel here = Place.enter(NUMBER OF THE METHOD);}</pre>
 *
 * and before each jump back, so at every turn of a loop, there is
 *
 * <pre>{@code here.set(NUMBER OF THE LOOP);}</pre>
 *
 * A loop is told by its first line, wherever the compiler put its condition. The class's shape is
 * unchanged, so this works for classes that are loaded already too.
 */
final class Marker {
    private static final ClassDesc PLACE = ClassDesc.of("tailscope.Place");
    private static final ClassDesc CHANNEL = ClassDesc.of("tailscope.Channel");
    private static final MethodTypeDesc ENTER =
        MethodTypeDesc.of(CHANNEL, ConstantDescs.CD_long);
    private static final MethodTypeDesc SET =
        MethodTypeDesc.of(ConstantDescs.CD_void, ConstantDescs.CD_long);

    /** The class with marks. {@code numbers}: the number of each name. */
    static byte[] mark(
        byte[] bytes, String type, ClassLoader loader, ToLongFunction<String> numbers) {
        // Classes are looked up as files: to load them here would load them too early.
        ClassHierarchyResolver resolver = ClassHierarchyResolver.ofResourceParsing(loader)
            .orElse(ClassHierarchyResolver.defaultResolver());
        ClassFile context = ClassFile.of(ClassFile.ClassHierarchyResolverOption.of(resolver));
        ClassModel model = context.parse(bytes);
        ClassTransform all = (builder, element) -> {
            if (element instanceof MethodModel method && method.code().isPresent()) {
                String name = type + "." + method.methodName().stringValue();
                Marks marks = new Marks(name, numbers);
                builder.transformMethod(method, MethodTransform.transformingCode(marks));
            } else {
                builder.with(element);
            }
        };
        return context.transformClass(model, all);
    }

    /** One method's body. */
    private static final class Marks implements CodeTransform {
        private final String method;
        private final ToLongFunction<String> numbers;
        /** Labels that were passed, and which of the lines the first instruction behind each has. */
        private final Map<Label, Integer> passed = new HashMap<>();
        private final List<Label> just = new ArrayList<>();
        private final List<Integer> lines = new ArrayList<>();
        private int here;

        Marks(String method, ToLongFunction<String> numbers) {
            this.method = method;
            this.numbers = numbers;
        }

        @Override
        public void atStart(CodeBuilder code) {
            here = code.allocateLocal(TypeKind.REFERENCE);
            code.loadConstant(numbers.applyAsLong(method));
            code.invokestatic(PLACE, "enter", ENTER).astore(here);
        }

        @Override
        public void accept(CodeBuilder code, CodeElement element) {
            if (element instanceof LabelTarget target) {
                just.add(target.label());
            } else if (element instanceof LineNumber number) {
                lines.add(number.line());
            } else if (element instanceof Instruction) {
                just.forEach(label -> passed.put(label, Math.max(0, lines.size() - 1)));
                just.clear();
                targets(element).stream().filter(passed::containsKey).findFirst().ifPresent(
                    loop -> turn(code, passed.get(loop)));
            }
            code.with(element);
        }

        private void turn(CodeBuilder code, int from) {
            // Where the class has no lines all loops of a method are its loop 0.
            int first = lines.stream().skip(from).min(Integer::compare).orElse(0);
            String loop = method + ":" + first;
            code.aload(here).loadConstant(numbers.applyAsLong(loop));
            code.invokevirtual(CHANNEL, "set", SET);
        }

        /** Where an instruction may jump to. */
        private static List<Label> targets(CodeElement element) {
            if (element instanceof BranchInstruction branch) {
                return List.of(branch.target());
            }
            List<Label> all = new ArrayList<>();
            if (element instanceof TableSwitchInstruction table) {
                all.add(table.defaultTarget());
                table.cases().stream().map(SwitchCase::target).forEach(all::add);
            } else if (element instanceof LookupSwitchInstruction lookup) {
                all.add(lookup.defaultTarget());
                lookup.cases().stream().map(SwitchCase::target).forEach(all::add);
            }
            return all;
        }
    }

    private Marker() {}
}
