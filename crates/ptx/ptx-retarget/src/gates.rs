//! The needs of a module's parts: instructions, special registers, directives, types, pragmas.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use ptx::body::{Body, Line, SpecialRegister};
use ptx::forms::{self, Instance, Need};
use ptx::{Function, Statement, Variable, needs, verify};

/// The instances of each mnemonic met so far.
#[derive(Default)]
pub(crate) struct Catalog {
    instances: RefCell<HashMap<String, Rc<Vec<Instance>>>>,
}

impl Catalog {
    fn of(&self, mnemonic: &str) -> Rc<Vec<Instance>> {
        let find = || Rc::new(forms::in_any_order(mnemonic).unwrap_or_default());
        self.instances.borrow_mut().entry(mnemonic.to_owned()).or_insert_with(find).clone()
    }

    /// The alternative needs of an instruction without those of its special registers; none if no
    /// form of the table takes its operands.
    pub(crate) fn of_instruction<'m>(&self, body: &Body<'m>, line: &Line<'m>) -> Vec<Need> {
        let mut all: Vec<Need> = Vec::new();
        for instance in &*self.of(line.instruction.mnemonic.text()) {
            if verify::takes(body, line, instance) {
                all.extend(
                    instance.needs.iter().filter(|need| !all.contains(need)).copied().collect::<Vec<_>>(),
                );
            }
        }
        all
    }
}

/// The special registers that an instruction names.
pub(crate) fn special_registers(line: &Line<'_>) -> Vec<SpecialRegister> {
    let mut found = Vec::new();
    line.operands.iter().for_each(|operand| operand.special_registers(&mut |register| found.push(register)));
    found
}

/// The needs of a function's declarations: types of parameters, registers and variables.
pub(crate) fn of_declarations(function: &Function) -> Vec<Need> {
    let mut found = Vec::new();
    let mut note = |variable: &Variable| found.extend(needs::of_type(variable.ty));
    function.returns.iter().chain(&function.params).for_each(&mut note);
    function.visit(&mut |statement| {
        if let Statement::Variable(variable) = statement {
            note(variable);
        }
    });
    found.dedup();
    found
}
