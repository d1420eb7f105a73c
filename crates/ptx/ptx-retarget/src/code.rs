//! The text that takes an instruction's place: one scope, whose registers nothing outside can name.

use ptx::syntax::tree::{Instruction, Operand};
use ptx::{Position, Statement};

/// Statements of a scope. All instructions get the guard of the one that they replace.
pub(crate) struct Code {
    text: String,
    guard: String,
    /// Begins the names of registers and labels.
    stem: String,
    names: u32,
}

impl Code {
    /// Code in place of `instruction`; no name of the module begins as `stem`.
    pub(crate) fn new(instruction: &Instruction, stem: String) -> Self {
        let guard = instruction.predicate.as_ref().map_or(String::new(), |guard| {
            format!("@{}{} ", if guard.negated { "!" } else { "" }, guard.register)
        });
        Code { text: String::new(), guard, stem, names: 0 }
    }

    /// A name that nothing else has.
    fn name(&mut self) -> String {
        self.names += 1;
        format!("{}{}", self.stem, self.names)
    }

    /// Declares a register of this type, such as `b32`.
    pub(crate) fn register(&mut self, ty: &str) -> String {
        let name = self.name();
        self.text.push_str(&format!(".reg .{ty} {name};\n"));
        name
    }

    /// Writes an instruction, without its semicolon.
    pub(crate) fn op(&mut self, text: impl AsRef<str>) {
        self.text.push_str(&format!("{}{};\n", self.guard, text.as_ref()));
    }

    /// A register of type `ty` with the value of a `mov` from `source`.
    pub(crate) fn copy(&mut self, ty: &str, source: &str) -> String {
        let register = self.register(ty);
        self.op(format!("mov.{ty} {register}, {source}"));
        register
    }

    /// The halves of `whole`, of type `ty`, which is twice as wide.
    pub(crate) fn halves(&mut self, ty: &str, part: &str, whole: &str) -> [String; 2] {
        let parts = [self.register(part), self.register(part)];
        self.op(format!("mov.{ty} {{{}, {}}}, {whole}", parts[0], parts[1]));
        parts
    }

    /// Writes what `body` writes between two labels, which it gets for `bra`; only the lanes that
    /// the guard lets pass execute it, and its instructions have no guard.
    pub(crate) fn region(&mut self, body: impl FnOnce(&mut Code, &str, &str)) {
        let (start, end) = (self.name().replace('%', "$"), self.name().replace('%', "$"));
        let guard = std::mem::take(&mut self.guard);
        if !guard.is_empty() {
            let (negated, register) = match guard.trim_start_matches('@').strip_prefix('!') {
                Some(register) => ("", register),
                None => ("!", guard.trim_start_matches('@')),
            };
            self.text.push_str(&format!("@{negated}{register}bra {end};\n"));
        }
        self.text.push_str(&format!("{start}:\n"));
        body(self, &start, &end);
        self.text.push_str(&format!("{end}:\n"));
        self.guard = guard;
    }

    /// Writes an instruction with another guard, inside [`Code::region`].
    pub(crate) fn when(&mut self, guard: &str, text: impl AsRef<str>) {
        self.text.push_str(&format!("@{guard} {};\n", text.as_ref()));
    }

    /// The scope as a statement, all at the position of what it replaces. `None` if it is no PTX,
    /// which operands of unusual forms cause.
    pub(crate) fn statement(&self, position: Position) -> Option<Statement> {
        let source =
            format!(".version 9.5\n.target sm_100a\n.address_size 64\n.func f()\n{{\n{}}}\n", self.text);
        let module = ptx::parse(&source).ok()?;
        let mut body = module.functions().next()?.body.clone()?;
        for statement in &mut body {
            match statement {
                Statement::Instruction(instruction) => instruction.position = position,
                Statement::Variable(variable) => variable.position = position,
                Statement::Label(_, place) => *place = position,
                _ => {}
            }
        }
        Some(Statement::Block(body))
    }
}

/// Whether the operand is `_`.
pub(crate) fn is_sink(operand: &Operand) -> bool {
    matches!(operand, Operand::Sink)
}
