//! Lowers a module, pass by pass: what a row writes may need another row.

use ptx::body::{Body, Line, Names};
use ptx::forms::Need;
use ptx::syntax::tree::{Directive, Item, Name};
use ptx::{Function, Module, Statement, needs};

use crate::code::Code;
use crate::gates::{Catalog, of_declarations, special_registers};
use crate::rows::{ROWS, Row};
use crate::site::Site;
use crate::{Gpu, Header};

/// Maximum number of passes: no row needs the result of more than two others.
const PASSES: usize = 5;

/// An instruction that a row has replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function.
    pub function: Name,
    /// The line of the instruction in the original, from 1.
    pub line: u32,
    /// The mnemonic, the special register or the directive.
    pub form: String,
    /// The row.
    pub row: &'static Row,
}

/// Something that the GPU does not have and no row replaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// The function; empty for the module's header.
    pub function: Name,
    /// The line in the original, from 1; 0 for the module's header.
    pub line: u32,
    /// The mnemonic, the special register or the directive.
    pub form: String,
    /// The alternative needs; none if the table does not know the form.
    pub needs: Vec<Need>,
    /// The approximate row that would take it.
    pub approximate: Option<&'static Row>,
    /// Why no driver takes the module, whatever the GPU; `None` where the GPU is the reason.
    pub refusal: Option<String>,
}

impl Blocked {
    /// A module's header that no driver of the GPU takes, and the one that it would need.
    pub(crate) fn by_header(own: Header, needs: Option<Need>) -> Blocked {
        let needs = Vec::from_iter(needs);
        Blocked {
            function: "".into(),
            line: 0,
            form: own.to_string(),
            needs,
            approximate: None,
            refusal: None,
        }
    }
}

/// A lowered module.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The module, which the driver takes if nothing is blocked.
    pub module: Module,
    /// The header before and after; `None` if the module has no valid one.
    pub headers: Option<(Header, Header)>,
    /// Changes, in source order for each function.
    pub changes: Vec<Change>,
    /// Instructions that could not be changed.
    pub blocked: Vec<Blocked>,
}

impl Lowered {
    /// Whether all changes are exact.
    pub fn is_exact(&self) -> bool {
        self.changes.iter().all(|change| change.row.exact)
    }
}

/// Lowers a module for a GPU. With `approximate`, inexact rows are used too.
pub fn lower(module: &Module, gpu: Gpu, approximate: bool) -> Lowered {
    let mut lowering = Lowering {
        gpu,
        approximate,
        catalog: Catalog::default(),
        stem: unused_stem(module),
        names: 0,
        changes: Vec::new(),
        blocked: Vec::new(),
        kept: Vec::new(),
    };
    let mut current = module.clone();
    for _ in 0..PASSES {
        let (next, changed) = lowering.pass(&current);
        current = next;
        if !changed {
            break;
        }
    }
    let headers = Header::of(module).map(|own| (own, lowering.header(own)));
    if let Some((_, after)) = headers {
        current.version = after.version;
        current.target[0] = after.target.to_string().as_str().into();
    }
    lowering.changes.sort_by_key(|change| change.line);
    Lowered { module: current, headers, changes: lowering.changes, blocked: lowering.blocked }
}

/// The beginning of names that no name of the module has.
fn unused_stem(module: &Module) -> String {
    let text = module.to_string();
    let mut stem = "%apex".to_owned();
    while text.contains(&stem) || text.contains(&stem.replace('%', "$")) {
        stem.push('x');
    }
    stem
}

struct Lowering {
    gpu: Gpu,
    approximate: bool,
    catalog: Catalog,
    /// Begins the names of new registers, and how many scopes have some.
    stem: String,
    names: u32,
    changes: Vec<Change>,
    /// Instructions that the last pass could not replace.
    blocked: Vec<Blocked>,
    /// The needs of what the last pass left.
    kept: Vec<Vec<Need>>,
}

/// What becomes of an instruction.
enum Outcome {
    Keep,
    Replace(Statement),
}

impl Lowering {
    /// The header of the lowered module. Where the driver takes none that suffices, `own`, and
    /// something is blocked.
    fn header(&mut self, own: Header) -> Header {
        if self.gpu.takes(own) && self.changes.is_empty() {
            return own;
        }
        self.gpu.least(&self.kept, own).unwrap_or_else(|| {
            let any_driver = Gpu { newest: (u32::MAX, 0), ..self.gpu };
            let least = any_driver.least(&self.kept, own);
            self.blocked.push(Blocked::by_header(own, least.map(Header::as_need)));
            own
        })
    }

    /// Replaces what a row takes; the module, and whether something was replaced.
    fn pass(&mut self, module: &Module) -> (Module, bool) {
        let names = Names::new(module);
        self.blocked.clear();
        self.kept.clear();
        let before = self.changes.len();
        let mut items = Vec::with_capacity(module.items.len());
        for item in &module.items {
            items.push(match item {
                Item::Function(function) => Item::Function(self.function(&names, function)),
                other => other.clone(),
            });
            if let Item::Variable(variable) = item {
                self.kept.extend(needs::of_type(variable.ty).map(|need| vec![need]));
            }
        }
        let changed = self.changes.len() > before;
        (Module { items, ..module.clone() }, changed)
    }

    fn function(&mut self, names: &Names<'_>, function: &Function) -> Function {
        let mut lowered = function.clone();
        lowered.directives.retain(|directive| self.keeps_directive(function, directive));
        for need in of_declarations(function) {
            self.need(function, function.position.line, "a variable of this type", vec![need]);
        }
        let Some(statements) = &function.body else { return lowered };
        let body = names.body(function);
        let outcomes: Vec<Outcome> = body.lines.iter().map(|line| self.instruction(&body, line)).collect();
        lowered.body = Some(self.rebuilt(statements, &mut outcomes.into_iter()));
        lowered
    }

    /// The statements with their replacements, which come in source order. The parser bounds how
    /// deep scopes nest.
    fn rebuilt(
        &mut self,
        statements: &[Statement],
        outcomes: &mut impl Iterator<Item = Outcome>,
    ) -> Vec<Statement> {
        let mut all = Vec::with_capacity(statements.len());
        for statement in statements {
            all.push(match statement {
                Statement::Instruction(_) => match outcomes.next() {
                    Some(Outcome::Replace(scope)) => scope,
                    _ => statement.clone(),
                },
                Statement::Block(inner) => Statement::Block(self.rebuilt(inner, outcomes)),
                Statement::Pragma(texts) if !self.keeps_pragma(texts) => continue,
                other => other.clone(),
            });
        }
        all
    }

    fn instruction(&mut self, body: &Body<'_>, line: &Line<'_>) -> Outcome {
        let mut missing = None;
        for register in special_registers(line) {
            let needs = vec![needs::of_register(register)];
            match self.gpu.has(&needs) {
                true => self.keep(needs),
                false => missing = Some((register.name(), needs)),
            }
        }
        let needs = self.catalog.of_instruction(body, line);
        if missing.is_none() && !self.gpu.has(&needs) {
            missing = Some((line.instruction.mnemonic.text().to_owned(), needs));
        } else if missing.is_none() {
            self.keep(needs);
        }
        let Some((form, needs)) = missing else { return Outcome::Keep };
        let (function, line_number) = (body.function.name.clone(), line.instruction.position.line);
        match self.replacement(body, line) {
            Some((row, scope)) if row.exact || self.approximate => {
                self.changes.push(Change { function, line: line_number, form, row });
                Outcome::Replace(scope)
            }
            found => {
                let approximate = found.map(|(row, _)| row);
                self.blocked.push(Blocked {
                    function,
                    line: line_number,
                    form,
                    needs,
                    approximate,
                    refusal: None,
                });
                Outcome::Keep
            }
        }
    }

    /// The first row that takes the instruction, and what it makes of it.
    fn replacement(&mut self, body: &Body<'_>, line: &Line<'_>) -> Option<(&'static Row, Statement)> {
        let site = Site::new(body, line);
        ROWS.iter().find_map(|row| {
            self.names += 1;
            let mut code = Code::new(line.instruction, format!("{}{}_", self.stem, self.names));
            row.apply(&site, &mut code)?;
            Some((row, code.statement(line.instruction.position)?))
        })
    }

    /// Directives about clusters mean nothing where each block is one, unless they ask for more.
    fn keeps_directive(&mut self, function: &Function, directive: &Directive) -> bool {
        let Some(needs) = needs::of_directive(&directive.name).map(|need| vec![need]) else { return true };
        let blocks: u64 = directive.values.iter().fold(1, |product, value| product.saturating_mul(*value));
        let is_dropped = match &*directive.name {
            "reqnctapercluster" => blocks <= 1,
            "explicitcluster" | "maxclusterrank" => true,
            _ => false,
        };
        let form = format!(".{}", directive.name);
        if self.gpu.has(&needs) || !is_dropped {
            self.need(function, function.position.line, &form, needs);
            return true;
        }
        if let Some(row) = ROWS.iter().find(|row| row.name == "cluster registers") {
            self.changes.push(Change {
                function: function.name.clone(),
                line: function.position.line,
                form,
                row,
            });
        }
        false
    }

    /// Pragmas are hints: those that the driver does not know are left out.
    fn keeps_pragma(&mut self, texts: &[String]) -> bool {
        let needs: Vec<Need> = texts.iter().filter_map(|text| needs::of_pragma(text)).collect();
        let has_all = needs.iter().all(|need| self.gpu.has(&[*need]));
        if has_all {
            needs.into_iter().for_each(|need| self.keep(vec![need]));
        }
        has_all
    }

    /// Notes a need that stays, or that something is blocked.
    fn need(&mut self, function: &Function, line: u32, form: &str, needs: Vec<Need>) {
        if self.gpu.has(&needs) {
            return self.keep(needs);
        }
        let (function, form) = (function.name.clone(), form.to_owned());
        self.blocked.push(Blocked { function, line, form, needs, approximate: None, refusal: None });
    }

    fn keep(&mut self, needs: Vec<Need>) {
        if !self.kept.contains(&needs) {
            self.kept.push(needs);
        }
    }
}
