//! The walk against a single-step oracle: real programs, of which each instruction is stepped over
//! with `ptrace`. Every address that a walk calls known must be the one that the program then uses.

#![cfg(target_arch = "x86_64")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use tailscope_locality::program;
use tailscope_locality::walk::{Access, Kind, MOST_STEPS, Program, Registers, StackCopy, Walker};

const STEPS: usize = 40_000;
/// A prime number, so that samples do not keep step with loops.
const EVERY: usize = 37;
const STACK: usize = 4096;

/// A program that computes, and is ended with the test.
struct Running(Child);

impl Running {
    fn start(command: &[&str]) -> io::Result<Self> {
        let child = Command::new(command[0])
            .args(&command[1..])
            .stdin(File::open("/dev/zero")?)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has had 200 ms of CPU time, so that it is past its start.
    fn is_at_work(&self) {
        let start = Instant::now();
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid()));
            let stat = stat.unwrap_or_default();
            let time = stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            if time.is_some_and(|ns| ns > 200_000_000) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it does nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn registers(pid: Pid) -> Registers {
    let r = ptrace::getregs(pid).expect("it is stopped");
    Registers {
        general: [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11,
            r.r12, r.r13, r.r14, r.r15,
        ],
        ip: r.rip,
        flags: r.eflags,
    }
}

/// What a program did: its registers before each instruction, and copies of its stack.
struct Trace {
    steps: Vec<Registers>,
    stacks: Vec<(usize, Vec<u8>)>,
}

fn trace(running: &Running) -> Trace {
    let pid = Pid::from_raw(running.pid().cast_signed());
    ptrace::attach(pid).expect("our own child");
    assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Stopped(..))));
    let memory = File::open(format!("/proc/{pid}/mem")).expect("our own child");
    let mut trace = Trace {
        steps: Vec::new(),
        stacks: Vec::new(),
    };
    for step in 0..STEPS {
        let now = registers(pid);
        if step % EVERY == 0 && step + MOST_STEPS < STEPS {
            let mut stack = vec![0; STACK];
            let read = memory.read_at(&mut stack, now.general[4]).unwrap_or(0);
            stack.truncate(read);
            trace.stacks.push((step, stack));
        }
        trace.steps.push(now);
        ptrace::step(pid, None).expect("it is stopped");
        assert!(matches!(waitpid(pid, None), Ok(WaitStatus::Stopped(..))));
    }
    trace
}

/// Where an instruction accesses memory, by its operands and not by what the walk uses.
fn truth(instruction: &Instruction, registers: &Registers) -> Vec<u64> {
    let value = |register: Register| {
        if register.is_segment_register() {
            return Some(0);
        }
        let full = registers.general[register.full_register().number()];
        Some(if register.size() == 4 {
            full & 0xffff_ffff
        } else {
            full
        })
    };
    let is_memory = |operand: &u32| {
        matches!(
            instruction.op_kind(*operand),
            OpKind::Memory | OpKind::MemorySegRSI | OpKind::MemoryESRDI
        )
    };
    let mut places: Vec<u64> = (0..instruction.op_count())
        .filter(is_memory)
        .filter_map(|operand| instruction.virtual_address(operand, 0, |r, _, _| value(r)))
        .collect();
    let sp = registers.general[4];
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Call => places.push(sp.wrapping_sub(8)),
        Mnemonic::Pop | Mnemonic::Ret => places.push(sp),
        Mnemonic::Leave => places.push(registers.general[5]),
        _ => {}
    }
    places
}

#[derive(Debug, Default)]
struct Score {
    right: usize,
    wrong: usize,
    /// Accesses before a sample that are right, and that are wrong.
    before: [usize; 2],
    /// Accesses of each sample.
    depths: Vec<usize>,
    first_wrong: Option<String>,
}

fn score(running: &Running, trace: &Trace) -> Score {
    let mut program = program::Program::open(running.pid()).expect("our own child");
    let mut walker = Walker::default();
    let mut score = Score::default();
    for (start, stack) in &trace.stacks {
        let registers = &trace.steps[*start];
        let copy = StackCopy {
            from: registers.general[4],
            bytes: stack,
        };
        let mut found = Vec::new();
        walker.walk(
            registers,
            copy,
            &mut program,
            |access, _| found.push(access),
            |_| {},
        );
        score.depths.push(found.len());
        if let Some(previous) = start.checked_sub(1).map(|before| &trace.steps[before])
            && let Some(instruction) = program.previous(registers.ip)
        {
            let mut check = |address| {
                let is_right = instruction.ip() == previous.ip
                    && truth(&instruction, previous).contains(&address);
                score.before[usize::from(!is_right)] += 1;
            };
            walker.before(registers, &instruction, |access| check(access.address));
        }
        let steps = Collapsed::new(&trace.steps[*start..]);
        for access in &found {
            // The trace may end within a long string instruction: nothing is known of what follows.
            let Some(now) = steps.at(access.step as usize) else {
                continue;
            };
            let instruction = program.instruction(now.ip).expect("it ran");
            let is_right =
                now.ip == access.ip && truth(&instruction, now).contains(&access.address);
            if is_right {
                score.right += 1;
            } else {
                score.wrong += 1;
                score.first_wrong.get_or_insert_with(|| {
                    let path = steps.so_far().iter().map(|r| format!("{:x}", r.ip));
                    format!("{access:x?} {:?}", path.collect::<Vec<_>>())
                });
            }
        }
    }
    score.depths.sort_unstable();
    score
}

/// Steps without the repetitions of one string instruction, over which `ptrace` stops each time.
struct Collapsed<'t> {
    steps: Vec<&'t Registers>,
}

impl<'t> Collapsed<'t> {
    fn new(trace: &'t [Registers]) -> Self {
        let mut steps: Vec<&Registers> = Vec::new();
        for step in trace {
            let repeats = steps.last().is_some_and(|last| last.ip == step.ip);
            if !repeats {
                steps.push(step);
            }
            if steps.len() > MOST_STEPS {
                break;
            }
        }
        Self { steps }
    }

    fn at(&self, step: usize) -> Option<&'t Registers> {
        self.steps.get(step).copied()
    }

    fn so_far(&self) -> &[&'t Registers] {
        &self.steps
    }
}

fn check(command: &[&str]) {
    let running = match Running::start(command) {
        Ok(running) => running,
        Err(e) => {
            println!("skipped {}: {e}", command[0]);
            return;
        }
    };
    running.is_at_work();
    let trace = trace(&running);
    let score = score(&running, &trace);
    let median = score.depths[score.depths.len() / 2];
    let mean = score.right as f64 / score.depths.len() as f64;
    println!(
        "{}: {} right, {} wrong, median {median} accesses a sample, mean {mean:.1}; before: {:?}; {:?}",
        command[0], score.right, score.wrong, score.before, score.first_wrong,
    );
    assert!(score.right > 1000, "{score:?}");
    // One of a thousand may be wrong: the kernel can change memory during a system call.
    assert!(1000 * score.wrong <= score.right, "{:?}", score.first_wrong);
    let [right, wrong] = score.before;
    assert!(
        1000 * wrong <= right,
        "{right} right before samples, {wrong} wrong"
    );
    assert!(median >= 2, "median {median}");
}

#[test]
fn a_shells_accesses_are_known_exactly() {
    check(&["bash", "-c", "while :; do x=${x:0:9}a$((n += 1)); done"]);
}

#[test]
fn a_compressors_accesses_are_known_exactly() {
    check(&["gzip", "-c"]);
}

#[test]
fn an_interpreters_accesses_are_known_exactly() {
    check(&[
        "python3",
        "-c",
        "d = {}\nfor n in iter(int, 1): d[len(d) % 997] = str(d)[:9]",
    ]);
}

#[test]
fn an_access_has_a_size_and_a_kind() {
    // add qword ptr [rax], 1; movzx ecx, byte ptr [rdi+rcx*2]; push rbx
    let code = [0x48, 0x83, 0x00, 0x01, 0x0f, 0xb6, 0x0c, 0x4f, 0x53];
    struct Fixed([u8; 9]);
    impl Program for Fixed {
        fn instruction(&mut self, address: u64) -> Option<Instruction> {
            let rest = self.0.get(address.checked_sub(0x1000)? as usize..)?;
            let mut decoder = iced_x86::Decoder::with_ip(64, rest, address, 0);
            decoder.can_decode().then(|| decoder.decode())
        }
        fn constant(&mut self, _: u64, _: usize) -> Option<u64> {
            None
        }
    }
    let mut registers = Registers {
        ip: 0x1000,
        ..Registers::default()
    };
    registers.general[0] = 0x5000;
    registers.general[1] = 8;
    registers.general[4] = 0x9008;
    registers.general[7] = 0x6000;
    let copy = StackCopy {
        from: 0,
        bytes: &[],
    };
    let mut found: Vec<Access> = Vec::new();
    let mut walker = Walker::default();
    let program = &mut Fixed(code);
    walker.walk(&registers, copy, program, |a, _| found.push(a), |_| {});
    let found: Vec<_> = found
        .iter()
        .map(|a| (a.address, a.size, a.kind, a.step))
        .collect();
    let wanted = [
        (0x5000, 8, Kind::Update, 0),
        (0x6010, 1, Kind::Read, 1),
        (0x9000, 8, Kind::Write, 2),
    ];
    assert_eq!(found, wanted);
}
