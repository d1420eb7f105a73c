//! The place of the program that the device works for most of the time, quoted.
//!
//! No rule knows every cause. Where one place takes much of the time, what stands there is the best
//! clue. Where the table of known causes has a statement like it, the finding has that cause's
//! remedy and claim. Otherwise it has the questions that its families of operations suggest, and
//! claims no saving: it is said where the other findings explain less than half of the place's
//! time (`advise::covering`), and then before those that save less.

use apex_ordered::Order;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::backward::Backward;
use super::compiled::Compiled;
use super::{
    CPU_TIMES, Draft, Fault, Needs, Outcome, Rule, UNTIMED, confidence, copies_part, counted, job_saving,
    kernel_finding, limits, on_the_clock, percent, reread, share_of_launches,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use crate::rules::host_function::of_what;
use crate::rules::known::{cause_of_statement, fits_operations};
use apex_knowledge::{Cause, Claims, Knowledge, Saves};
use apex_profile::names::{Operation, Owner, OwnerKind};
use apex_profile::{Figure, Graph, Kernel, Profile, Site, SiteShare, total};

/// Minimum share of the time for a place to be a finding.
const LEAST: f64 = 0.25;
/// Minimum share of the time of a place without its backward pass, which may add the rest.
const OWN: f64 = 0.02;
/// Minimum share of a place's time for its backward pass to be told.
const TOLD: f64 = 0.05;
/// Minimum share of a place's kernels that a compiler made, where a compiled function calls
/// libraries.
const COMPILED: f64 = 0.1;
/// Minimum priority of causes that the statements of a compiled function are compared with: they
/// are many, and its time is not divided among them.
const OF_BODY: i64 = 3;
/// Share of a cause's saving that is claimed for a statement of a compiled function.
const PART_OF_BODY: f64 = 0.5;
/// Minimum share of the place's time for a second family of operations to be asked about.
const SECOND: f64 = 0.25;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T130",
    slug: "costly-line",
    title: "One line takes much of the time",
    severity: Severity::Info,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Kernels and queued copies of one place of the program (the innermost line that is not a library's; all backward \
        passes are one place) take at least 25% of the time, and other findings explain less than half of that: a known cause or \
        a finding about what kernels do explains the whole time of its kernels, one about launch configurations what it saves. If \
        the statement at the place is like one of the table of known causes, the finding is about that cause. Then the line's \
        backward pass counts too, as far as kinds and numbers of kernels tell it, and so do the statements of functions that it has \
        compiled and of its own kernels in Python.",
    source: "The threshold is APEX's own.",
    why: "No rule knows what the line is for. Who wrote it can tell whether all of its result is needed.",
    change: "See whether the line can do less: whether its result is needed in full, whether a cheaper form gives it, and whether it is computed \
        again from the same input.",
    saving: "Unknown: at most the time of the place. That of a known cause is its share of this time.",
    verify: "the place takes less time",
    judge,
};

/// The device's work for a place.
pub(crate) struct Work<'p> {
    pub site: Site<'p>,
    /// Kernels and their GPU time from this place, in nanoseconds, the largest first.
    pub kernels: Vec<(usize, f64)>,
    /// Time of queued copies from this place, in nanoseconds.
    copies_ns: f64,
    /// Time on the clock, in nanoseconds.
    pub time_ns: f64,
    /// The part of it in which graphs ran whose kernels were not timed, in nanoseconds.
    graphs_ns: f64,
    /// The part of it that is inferred to be the line's backward pass, in nanoseconds.
    backward_ns: f64,
}

/// The device's work for each place, the largest first. Work whose division among places is not
/// known belongs to none.
pub(crate) fn work_by_place(profile: &Profile) -> Vec<Work<'_>> {
    let mut works: BTreeMap<_, Work<'_>> = BTreeMap::new();
    let on_the_clock = on_the_clock(profile);
    for (index, kernel) in profile.kernels.iter().enumerate() {
        let Some(time) = kernel.gpu_total_ns().filter(|_| kernel.launches.ran() > 0) else { continue };
        for (site, share) in shares(&profile.sites(&kernel.stacks)) {
            let work = works.entry(key(site)).or_insert_with(|| Work::at(site));
            work.kernels.push((index, time * share));
            work.time_ns += time * share * on_the_clock;
        }
    }
    for copies in profile.copies.iter().filter(|copies| !copies.wait()) {
        let time = copies_part(profile, profile.time_of_copies(copies).value).value;
        for (site, share) in shares(&profile.sites(&copies.stacks)) {
            let work = works.entry(key(site)).or_insert_with(|| Work::at(site));
            work.copies_ns += time * share;
            work.time_ns += time * share;
        }
    }
    for graph in &profile.graphs {
        let time = untimed_ns(profile, graph) * on_the_clock;
        for (site, share) in shares(&profile.sites(&graph.stacks)).into_iter().filter(|_| time > 0.0) {
            let work = works.entry(key(site)).or_insert_with(|| Work::at(site));
            let nodes = graph.kernels.iter().map(|(row, _)| *row);
            let new: Vec<_> =
                nodes.filter(|row| work.kernels.iter().all(|(known, _)| known != row)).collect();
            work.kernels.extend(new.into_iter().map(|row| (row, 0.0)));
            work.graphs_ns += time * share;
            work.time_ns += time * share;
        }
    }
    let mut works: Vec<_> = works.into_values().collect();
    works.iter_mut().for_each(|work| work.kernels.order_by(|a, b| b.1.total_cmp(&a.1)));
    works.order_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    works
}

/// GPU time of a graph that is not known to be its kernels', nanoseconds.
fn untimed_ns(profile: &Profile, graph: &Graph) -> f64 {
    let all = graph.gpu.map_or(0.0, |gpu| gpu.total_ns.value);
    let each = |row: usize| Some(profile.kernels.get(row)?.gpu.as_ref()?.each.mean_ns);
    let timed = graph.kernels.iter().filter_map(|&(row, nodes)| Some(each(row)? * f64::from(nodes)));
    (all - total(timed) * graph.launches as f64).max(0.0)
}

/// The place of a site: a line of Python, whatever compiled code it calls.
fn key(site: Site<'_>) -> (Option<(&str, Option<u32>)>, Option<Site<'_>>) {
    match site.frame() {
        Some(frame) if frame.line.is_some() => (Some((&frame.file, frame.line)), None),
        _ => (None, Some(site)),
    }
}

fn shares<'p>(sites: &[SiteShare<'p>]) -> Vec<(Site<'p>, f64)> {
    match sites {
        [only] => vec![(only.site, 1.0)],
        several => several.iter().filter_map(|site| Some((site.site, site.share?))).collect(),
    }
}

impl<'p> Work<'p> {
    fn at(site: Site<'p>) -> Self {
        let (copies_ns, time_ns, graphs_ns, backward_ns) = (0.0, 0.0, 0.0, 0.0);
        Self { site, kernels: Vec::new(), copies_ns, time_ns, graphs_ns, backward_ns }
    }

    /// The same with the backward pass of what is launched here.
    fn with_backward(&self, profile: &Profile, backward: Option<&Backward<'_>>) -> Self {
        let own = key(self.site);
        let mut kernels = self.kernels.clone();
        let mut added = 0.0;
        let its = backward.map(|backward| backward.of_stacks(|stack| key(stack.site()) == own));
        for (row, time) in its.into_iter().flatten() {
            added += time;
            match kernels.iter_mut().find(|(known, _)| *known == row) {
                Some((_, sum)) => *sum += time,
                None => kernels.push((row, time)),
            }
        }
        kernels.order_by(|a, b| b.1.total_cmp(&a.1));
        let backward_ns = added * on_the_clock(profile);
        Self { kernels, time_ns: self.time_ns + backward_ns, backward_ns, ..*self }
    }

    /// The families that take most of the time of the place: the largest, and a second one of at
    /// least [`SECOND`] of it.
    fn families(&self, profile: &Profile) -> Vec<Family> {
        if matches!(self.site, Site::Autograd) {
            return vec![BACKWARD];
        }
        if self.is_graph() {
            return vec![GRAPH];
        }
        let mut times: Vec<(Family, f64)> = vec![(COPIES, self.copies_ns)];
        for &(index, time) in &self.kernels {
            let family = family_of(&profile.kernels[index]);
            match times.iter_mut().find(|(known, _)| known.name == family.name) {
                Some((_, sum)) => *sum += time,
                None => times.push((family, time)),
            }
        }
        times.order_by(|a, b| b.1.total_cmp(&a.1));
        let all = total(times.iter().map(|(_, time)| *time));
        let second = times.iter().skip(1).take_while(|(_, time)| *time >= SECOND * all);
        times.first().into_iter().chain(second.take(1)).map(|(family, _)| *family).collect()
    }

    /// The statement that stands there; of a backward pass one that begins it, where the host was
    /// seen there: the one that keeps its graph for another pass, if any.
    fn quote(&self, profile: &'p Profile) -> Option<&'p str> {
        if !matches!(self.site, Site::Autograd) {
            return profile.quote(self.site.frame()?);
        }
        let begins = profile.quotes.values().filter(|quote| quote.contains(".backward("));
        begins.max_by_key(|quote| quote.contains("retain_graph")).map(String::as_str)
    }

    /// Whether most of its time is of graphs whose kernels were not timed: which of them take it is
    /// not known.
    fn is_graph(&self) -> bool {
        2.0 * self.graphs_ns >= self.time_ns && self.graphs_ns > 0.0
    }

    /// Whether its kernels come from statements that are not on its call stacks: of a function that
    /// XLA or Inductor compiled, or of a graph.
    fn is_compiled(&self, profile: &Profile) -> bool {
        let is_of_compiler = |row: usize| {
            let owner = profile.kernels.get(row).map(|kernel| kernel.traits.owner);
            matches!(owner, Some(Owner::Xla | Owner::Inductor))
        };
        let time = |is_meant: &dyn Fn(usize) -> bool| {
            total(self.kernels.iter().filter(|(row, _)| is_meant(*row)).map(|(_, time)| *time))
        };
        let of_compiler = time(&is_of_compiler);
        let is_made = of_compiler > 0.0 && of_compiler >= COMPILED * time(&|_| true);
        is_made || self.is_graph()
    }

    /// The largest of its kernels.
    fn largest<'a>(&self, profile: &'a Profile) -> Option<&'a Kernel> {
        self.kernels.first().and_then(|&(index, _)| profile.kernels.get(index))
    }

    /// Whether the largest of its kernels is the program's own.
    fn is_own(&self, profile: &Profile) -> bool {
        self.largest(profile).is_some_and(|kernel| kernel.traits.owner.kind() == OwnerKind::Own)
    }

    /// Whether XLA made most of its kernels: the line calls a compiled function, whose statements
    /// are not known.
    fn is_compiled_by_xla(&self, profile: &Profile) -> bool {
        self.largest(profile).is_some_and(|kernel| kernel.traits.owner == Owner::Xla)
    }

    /// The place, with the statement that stands there.
    fn place(&self, profile: &'p Profile) -> String {
        match self.quote(profile) {
            Some(quote) => format!("{} `{quote}`", self.site),
            None => self.site.to_string(),
        }
    }

    fn summary(&self, profile: &'p Profile, families: &[Family], span: f64) -> String {
        let all = total(self.kernels.iter().map(|(_, time)| *time));
        let largest = self.kernels.first().filter(|_| all > self.copies_ns).map(|(index, time)| {
            let name = &profile.kernels[*index].short_name;
            let count = counted(self.kernels.len() as u64, "kernel", "kernels");
            format!("; {count}, the largest `{name}` {}", percent(time * self.time_ns / all / span))
        });
        let backward = match self.backward_ns >= TOLD * self.time_ns {
            true => format!(
                "; {} of that is its backward pass, by the kinds and numbers of its kernels",
                percent(self.backward_ns / self.time_ns)
            ),
            false => String::new(),
        };
        format!(
            "{} {}: {}: {}{}{backward}",
            percent(self.time_ns / span),
            of_what(profile),
            self.place(profile),
            families.iter().map(|family| family.name).collect::<Vec<_>>().join(", and "),
            largest.unwrap_or_default()
        )
    }
}

fn judge(profile: &Profile) -> Outcome {
    let span = profile.totals.span_ns;
    if profile.on_cpu_device() {
        return Outcome::Unjudged(CPU_TIMES.to_owned());
    }
    if span <= 0.0 || profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let works = work_by_place(profile);
    let is_known = |work: &&Work<'_>| !matches!(work.site, Site::Thread(_)) && !work.kernels.is_empty();
    let large = || works.iter().filter(is_known).take_while(|work| work.time_ns >= LEAST * span);
    let knowledge = Knowledge::current();
    let backward = Backward::of(profile);
    // A place whose statement is known goes before a larger one of which nothing is.
    let those = works.iter().filter(is_known).take_while(|work| work.time_ns >= OWN * span);
    let claim = |of: &(Work<'_>, Known<'_>)| of.0.time_ns * of.1.cause.saves.likely;
    let known = those.filter_map(|work| {
        let known = known_at(profile, &knowledge, work)?;
        let whole = work.with_backward(profile, backward.as_ref());
        (whole.time_ns >= LEAST * span).then_some((whole, known))
    });
    let known = known.max_by(|a, b| claim(a).total_cmp(&claim(b)));
    if let Some((work, Known { cause, remedy, line })) = known {
        let claims = Some(cause.saves).filter(|_| cause.claims == Claims::Matched);
        let (claims, remedy) = match line {
            None => (claims, remedy.to_owned()),
            Some(line) => (claims.map(of_body), format!("{line}: {remedy}")),
        };
        let draft = draft(profile, &work, span, (Some(cause), claims), remedy);
        return Outcome::Known(Box::new(draft), Box::new(cause.clone()));
    }
    let Some(work) = large().next() else { return Outcome::Clear };
    let change = questions(profile, work);
    Outcome::found(draft(profile, work, span, (None, None), change))
}

/// What is claimed for one statement of a compiled function, whose time is not divided.
fn of_body(saves: Saves) -> Saves {
    Saves { least: 0.0, likely: PART_OF_BODY * saves.likely, ..saves }
}

/// A known cause at a place.
struct Known<'k> {
    cause: &'k Cause,
    remedy: &'k str,
    /// The line and its statement in the function that the place calls, where they are not the
    /// place's own.
    line: Option<String>,
}

/// The known cause of a place's statement; of a compiled function, of a statement in it.
fn known_at<'k>(profile: &Profile, knowledge: &'k Arc<Knowledge>, work: &Work<'_>) -> Option<Known<'k>> {
    let quote = work.quote(profile)?;
    let fits = |cause: &Cause| fits_operations(profile, cause, work.kernels.iter().copied());
    let file = work.site.frame().map_or("", |frame| &frame.file);
    let own = cause_of_statement(profile, knowledge, file, |cause| cause.names_line(quote) && fits(cause));
    if let Some((cause, remedy)) = own {
        return Some(Known { cause, remedy, line: None });
    }
    let frame = work.site.frame().filter(|_| work.is_own(profile) || work.is_compiled(profile))?;
    let called = profile.statements_called(&frame.file, quote);
    let makes = |cause: &Cause| {
        let mut all = profile.statements_of(&frame.file).filter(|_| work.is_own(profile));
        all.find(|(_, statement)| cause.names_maker(statement))
    };
    let named = |cause: &Cause| {
        let excepted = || called.iter().any(|(_, statement)| cause.is_excepted_by(statement));
        let named = called.iter().find(|(_, statement)| cause.names_line(statement));
        named.copied().filter(|_| !excepted()).or_else(|| makes(cause))
    };
    let is_about =
        |cause: &Cause| cause.priority >= OF_BODY && cause.operations.is_empty() && named(cause).is_some();
    let (cause, remedy) = cause_of_statement(profile, knowledge, &frame.file, is_about)?;
    let (line, statement) = named(cause)?;
    let file = frame.file.rsplit('/').next().unwrap_or_default();
    Some(Known { cause, remedy, line: Some(format!("{file}:{line} `{statement}`")) })
}

/// The change at a place of which no cause is known: to see whether it can do less.
fn questions(profile: &Profile, work: &Work<'_>) -> String {
    let mut asked: Vec<_> = work.families(profile).iter().map(|family| family.questions).collect();
    if work.is_compiled_by_xla(profile) {
        let compiled = Compiled::of(profile).filter(|_| !work.is_graph());
        let mapped = compiled.as_ref().is_none_or(Compiled::may_be_mapped).then_some(OF_MAPPED);
        let own = compiled.iter().flat_map(Compiled::questions);
        asked.splice(0..0, mapped.into_iter().chain(own).chain([OF_XLA]).collect::<Vec<_>>());
    }
    let share = work.time_ns / profile.totals.span_ns.max(1.0);
    let limit = limits::of_place(profile, share, work.largest(profile)).and_then(|(_, change)| change);
    let limit = limit.map_or_else(String::new, |change| format!("{change}. "));
    let again = Some(work).filter(|work| work.is_own(profile)).and_then(|work| {
        let quote = work.quote(profile)?;
        reread::loaded_again(profile, work.site.frame()?, quote)
    });
    let read = again.or_else(|| work.site.frame().and_then(|line| reread::change(profile, line)));
    let read = read.map_or_else(String::new, |change| format!("{change}. "));
    format!("{read}{limit}See whether {} can do less. {}", work.site, asked.join(" "))
}

/// The finding about a place: of a known cause with what is claimed for it, if anything is.
fn draft(
    profile: &Profile,
    work: &Work<'_>,
    span: f64,
    (cause, claims): (Option<&Cause>, Option<Saves>),
    change: String,
) -> Draft {
    let share = (work.time_ns / span).min(1.0);
    let most = format!("at most {} {}, if the line were not needed", percent(share), of_what(profile));
    // A graph whose kernels were not timed counts with the first of them.
    let first = work.kernels.first().map(|(index, _)| *index);
    let finding = |&(index, time): &(usize, f64)| {
        let of_all = time * on_the_clock(profile) / span;
        let all = profile.kernels[index].gpu_total_ns().unwrap_or(time);
        let part = time / all.max(time).max(f64::MIN_POSITIVE);
        let claim = |of: Saves| Figure::predicted(of.likely * part, (of.least * part, of.most * part));
        // Nothing is measured of a kernel in a graph that was timed as a whole.
        let evidence = Evidence::new("share of the time", Figure::measured(of_all), Unit::Share);
        let evidence = Some(evidence).filter(|_| time > 0.0 || !work.is_graph()).into_iter().collect();
        let saves = claims.map(claim).ok_or("");
        let fault = Fault { evidence, change: change.clone(), saves, threads: None };
        let mut found = kernel_finding(profile, index, fault);
        if let Some(claims) = claims.filter(|_| work.graphs_ns > 0.0 && Some(index) == first) {
            let Saves { least, likely, most } = claims;
            let graphs = work.graphs_ns;
            let time = Figure::predicted(graphs * likely, (graphs * least, graphs * most));
            let known = found.saving.time_ns.into_iter().chain([time]);
            found.saving = job_saving(profile, Figure::sum(known).unwrap_or(time));
        }
        found.saving.unknown_because = claims.is_none().then(|| most.clone());
        found
    };
    let mut summary = work.summary(profile, &work.families(profile), span);
    if let Some(compiled) =
        Some(profile).filter(|of| !work.is_graph() && work.is_compiled_by_xla(of)).and_then(Compiled::of)
    {
        summary = format!("{summary}; {}", compiled.in_words());
    }
    if cause.is_none()
        && let Some((limit, _)) = limits::of_place(profile, share, work.largest(profile))
    {
        summary = format!("{summary}; {limit}");
    }
    let meaning = cause.map_or_else(String::new, |cause| format!("; {}", cause.meaning));
    let reason = match cause {
        Some(_) => "the share is measured; the cause is inferred from the statement's text",
        None => "the share is measured; what another form saves is not known",
    };
    Draft {
        summary: format!("{summary}{meaning}"),
        evidence: vec![Evidence::new("share of the time", Figure::measured(share), Unit::Share)],
        kernels: work.kernels.iter().map(finding).collect(),
        change: Some(change),
        saving: Saving {
            unknown_because: Some(most),
            beyond: claims.map(|_| idle_beside(profile, work)),
            ..Saving::default()
        },
        confidence: confidence(Level::Low, reason),
    }
}

/// The most that goes with the launches of a place: their share of the idle time.
fn idle_beside(profile: &Profile, work: &Work<'_>) -> Figure {
    let kernels = work.kernels.iter().filter_map(|&(row, _)| profile.kernels.get(row));
    let share = share_of_launches(profile, kernels);
    Figure::predicted(0.0, (0.0, share * profile.accounts().idle_ns().bounds().1))
}

/// A family of operations: its name, and what to ask about a line that is of it.
#[derive(Clone, Copy)]
pub(super) struct Family {
    /// The name, in words.
    pub name: &'static str,
    questions: &'static str,
}

/// What to ask about a function that XLA compiled and `jax.vmap` may map.
const OF_MAPPED: &str = "Does the compiled function hold jax.lax.cond or switch under jax.vmap? Then it computes both \
    branches for all elements: keep what decides out of the batch (in_axes=None), or put the condition around vmap.";
/// What to ask about any function that XLA compiled.
const OF_XLA: &str =
    "Does the compiled function compute in each call what only some calls need, or what does not change?";

const OTHER: Family = Family {
    name: "kernels of its own",
    questions: "Is all of its result used? Does another algorithm need fewer operations or accesses, or can \
        threads share what they load? Is it computed again from the same input?",
};
const COPIES: Family = Family {
    name: "copies",
    questions: "Is all that is copied used? Can it be made, or stay, where it is used? Are copies large and of \
        adjacent bytes, or is it one of short rows (cudaMemcpy2D of a few bytes of each row)?",
};
const GRAPH: Family = Family {
    name: "CUDA graphs, whose kernels were not timed one by one",
    questions: "Is all of its result used? Is a part of it computed again from the same input? Record again with the \
        graphs switched off to see which kernels take the time (JAX: XLA_FLAGS=--xla_gpu_enable_command_buffer=).",
};
const BACKWARD: Family = Family {
    name: "gradients",
    questions: "Does an optimizer update all parameters that get gradients (requires_grad_(False) for those \
        that are never updated, torch.no_grad() or detach() for parts that train nothing)? Can the forward part be \
        cheaper, on which they depend? Is a loss differentiated more than once?",
};
const LINEAR_ALGEBRA: Family = Family {
    name: "a factorisation (singular values, eigenvalues, a solver)",
    questions: "Are all singular values, vectors or solutions used (the largest one comes from power \
        iteration, torch.svd_lowrank, torch.lobpcg)? Does a cheaper factorisation do (cholesky, qr), for many \
        matrices in one batch? Is the same matrix factorised again?",
};
const CONVOLUTION: Family = Family {
    name: "convolution",
    questions: "Is the whole output used? Is the filter separable into one-dimensional ones, or so large that \
        a Fourier transform is cheaper? Is it applied again to the same input?",
};

/// Questions by operation.
const FAMILIES: [(&[Operation], Family); 15] = [
    (
        &[Operation::MatrixProduct, Operation::MatrixVector],
        Family {
            name: "matrix products",
            questions: "Are all rows and columns of the result used (a vocabulary's scores at each position, and then \
                the last one)? Is an operand diagonal, mostly zero or of low rank, so that a scaling or smaller product \
                gives the same? Is it computed again from the same operands?",
        },
    ),
    (&[Operation::Convolution], CONVOLUTION),
    (&[Operation::LinearAlgebra], LINEAR_ALGEBRA),
    (
        &[Operation::Sort],
        Family {
            name: "sorting",
            questions: "Is the whole order used (topk selects)? Are keys short integers, or can they be combined into \
                one? Are the same keys sorted again?",
        },
    ),
    (
        &[Operation::Scan],
        Family {
            name: "prefix sums",
            questions: "Are all partial sums used? Do they run along the last, contiguous dimension, in few large \
                calls? Are they computed again from the same input?",
        },
    ),
    (
        &[Operation::Reduction, Operation::Normalization],
        Family {
            name: "reductions",
            questions: "Is each result used? Can several reductions of the same values be made in one pass, or with \
                what makes the values? Are they computed again from the same input?",
        },
    ),
    (
        &[Operation::Softmax, Operation::Loss],
        Family {
            name: "softmax or a loss",
            questions: "Is it needed for all rows (the last position, the sampled classes)? Does one fused function do \
                (cross_entropy of logits), in a half-precision type? Is it computed again from the same scores?",
        },
    ),
    (
        &[Operation::Attention],
        Family {
            name: "attention",
            questions: "Do all queries need all keys (a window, a cache)? Is the cheapest kernel chosen (types, masks, \
                head sizes)? Is it computed again for the same prefix?",
        },
    ),
    (
        &[
            Operation::Elementwise,
            Operation::Copy,
            Operation::Cast,
            Operation::LayoutConversion,
            Operation::Concatenation,
            Operation::Fill,
            Operation::Pooling,
            Operation::Resampling,
        ],
        Family {
            name: "elementwise work and copies",
            questions: "Are all elements used, or could a part be selected first? Can it be joined with the operation \
                before or after it (torch.compile, in place, another layout)? Is it computed again from the same input?",
        },
    ),
    (
        &[Operation::Indexing],
        Family {
            name: "access by indices",
            questions: "Are all gathered elements used? Are indices sorted or contiguous, so that a slice does? Is the \
                same table read again?",
        },
    ),
    (
        &[Operation::Random],
        Family {
            name: "random numbers",
            questions: "Are all numbers used? Can they be drawn in large calls, or where they are used? Could they be \
                drawn once?",
        },
    ),
    (
        &[Operation::Fft],
        Family {
            name: "Fourier transforms",
            questions: "Is the input real (rfft and irfft compute half of the spectrum)? Are lengths products of small \
                primes (next_fast_len)? Are all frequencies used? Are many transforms made by one call, from plans that \
                are kept, and is one of an unchanged input made once?",
        },
    ),
    (
        &[Operation::Sparse],
        Family {
            name: "products with a sparse matrix",
            questions: "What part of the matrix is not zero? From a few percent on, a dense product on tensor cores is \
                faster (to_dense() once, before the loop). Is the format one that the library is fast in (CSR, sorted; \
                blocks of 16 and more; 2:4)? Are many vectors multiplied at once?",
        },
    ),
    (
        &[Operation::Recurrent, Operation::Fused],
        Family { name: "one library routine", questions: OTHER.questions },
    ),
    (
        &[Operation::Optimizer],
        Family {
            name: "the optimizer",
            questions: "Do all parameters need the update in each step? Is it fused (fused=True), in few calls? Are \
                states in a smaller type enough?",
        },
    ),
];

pub(super) fn family_of(kernel: &Kernel) -> Family {
    let known = FAMILIES.iter().find(|(operations, _)| operations.contains(&kernel.traits.operation));
    let name = kernel.short_name.to_lowercase();
    let is_named = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match known {
        _ if is_named(&["convolve", "correlate"]) => CONVOLUTION,
        Some((_, family)) => *family,
        None if kernel.traits.owner.kind() == OwnerKind::Own => OTHER,
        None => Family { name: "a library's kernels", questions: OTHER.questions },
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, launched_at, named, profile_of, timed};
    use super::RULE;
    use apex_profile::Profile;

    const PRODUCT: &str = "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_kernel__5x_cublas";

    #[test]
    fn quotes_the_line_that_takes_the_time() {
        let mut profile = profile_of([timed(named(PRODUCT), 5e6)]);
        launched_at(&mut profile, "/home/me/graph.py", 17, "scaled");
        let quote = "return scaled_by(left, links, right)";
        profile.quotes.insert(("/home/me/graph.py".into(), 17), quote.into());
        let finding = assert_finds_in(&RULE, profile);
        let expected = format!("graph.py:17 scaled `{quote}`: matrix products; 1 kernel, the largest");
        assert!(finding.summary.contains(&expected), "{}", finding.summary);
        assert!(finding.change.contains("diagonal"), "{}", finding.change);
        let because = finding.saving.unknown_because.expect("no saving is claimed");
        assert!(because.starts_with("at most "), "{because}");
    }

    #[test]
    fn a_statement_that_is_known_has_a_remedy() {
        let mut profile = profile_of([timed(named(PRODUCT), 5e6)]);
        launched_at(&mut profile, "/home/me/adapter.py", 9, "forward");
        let quote = "return F.linear(x, self.weight + SCALE * (self.up @ self.down))";
        profile.quotes.insert(("/home/me/adapter.py".into(), 9), quote.into());
        let finding = assert_finds_in(&RULE, profile);
        assert_eq!(finding.cause.as_ref().map(|cause| &cause.id[..]), Some("product-of-weights-each-call"));
        assert!(finding.change.contains("in turn") && finding.summary.contains(quote), "{finding:?}");
        let share = finding.kernels[0].saving.of_kernel.expect("a claim").value;
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn a_statement_is_known_where_its_operations_take_the_time() {
        let copy = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&)>(int)";
        let of = |copying: f64| {
            let mut profile = profile_of([timed(named(copy), copying), timed(named(PRODUCT), 8e6 - copying)]);
            launched_at(&mut profile, "/home/me/layer.py", 9, "forward");
            let quote = "y = self.mix(x.permute(0, 2, 3, 1).contiguous())";
            profile.quotes.insert(("/home/me/layer.py".into(), 9), quote.into());
            assert_finds_in(&RULE, profile).cause.map(|cause| cause.id)
        };
        assert_eq!(of(6e6).as_deref(), Some("copied-for-layout"));
        assert_eq!(of(2e6), None, "the product takes the time");
    }

    /// A kernel of the program's own, launched by `look`, with these statements of its file.
    fn own(statements: &[(&str, &str)]) -> Profile {
        let mut profile = profile_of([timed(named("attend"), 5e6)]);
        launched_at(&mut profile, "/home/me/read.py", 30, "look");
        profile.quotes.insert(("/home/me/read.py".into(), 30), "attend[grid](q, k, v, out)".into());
        for (line, (function, statement)) in (1..).zip(statements) {
            let body = profile.functions.entry(("/home/me/read.py".into(), (*function).into())).or_default();
            body.push((line, (*statement).to_owned()));
        }
        profile
    }

    const MASK: (&str, &str) = ("attend", "score = tl.where(mine[:, None] >= theirs[None, :], score, low)");

    #[test]
    fn statements_of_a_kernel_in_python_are_known_too() {
        let found = |statements: &[(&str, &str)]| assert_finds_in(&RULE, own(statements));
        let all = found(&[("attend", "for first in range(0, WORDS, OTHERS):"), MASK]);
        assert_eq!(all.cause.as_ref().map(|cause| &cause.id[..]), Some("masked-blocks-computed"));
        assert!(all.change.starts_with("read.py:2 `score = "), "{}", all.change);
        // A part of what the cause would save: the time is that of the whole kernel.
        let share = all.kernels[0].saving.of_kernel.expect("a claim").value;
        assert!((0.3..0.4).contains(&share), "{share}");
        let bounded = found(&[("attend", "for first in range(0, (block + 1) * OWN, OTHERS):"), MASK]);
        assert!(bounded.cause.is_none(), "the loop ends at the program's block");
        assert!(found(&[("other", MASK.1)]).cause.is_none(), "it is not called");
    }

    #[test]
    fn what_makes_a_kernel_may_stand_anywhere_in_its_file() {
        let found = |options: &str| {
            let made = format!("KERNEL = cp.RawKernel(SOURCE, \"light\", options=(\"{options}\",))");
            let mut profile = own(&[("", &made)]);
            profile.kernels.push(timed(named("cupy_add__float32_float32_float32"), 1e3));
            assert_finds_in(&RULE, profile).cause.map(|cause| cause.id)
        };
        assert_eq!(found("--device-debug").as_deref(), Some("kernel-compiled-for-debugging"));
        assert_eq!(found("-lineinfo"), None);
    }

    #[test]
    fn a_second_family_of_operations_is_asked_about_too() {
        let add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)";
        let mut profile = profile_of([timed(named(PRODUCT), 5e6), timed(named(add), 6e6)]);
        launched_at(&mut profile, "/home/me/layer.py", 9, "forward");
        let finding = assert_finds_in(&RULE, profile);
        assert!(
            finding.summary.contains("elementwise work and copies, and matrix products"),
            "{}",
            finding.summary
        );
        assert!(
            finding.change.contains("of low rank") && finding.change.contains("in place"),
            "{}",
            finding.change
        );
    }

    #[test]
    fn a_graph_that_was_timed_as_a_whole_says_nothing_about_its_kernels() {
        let mut profile = profile_of([timed(named(PRODUCT), 1.0)]);
        launched_at(&mut profile, "/home/me/chat.py", 9, "step");
        let work = super::Work {
            graphs_ns: 8e9,
            time_ns: 9e9,
            kernels: vec![(0, 0.0)],
            ..super::Work::at(apex_profile::Site::Autograd)
        };
        assert!(work.is_graph());
        let draft = super::draft(&profile, &work, 10e9, (None, None), String::new());
        assert!(draft.kernels[0].evidence.is_empty(), "nothing was measured of the kernel alone");
        let few = super::Work { graphs_ns: 1e9, ..work };
        assert!(!few.is_graph());
    }

    #[test]
    fn a_place_of_little_time_is_no_finding() {
        let mut profile = profile_of([timed(named(PRODUCT), 5e6)]);
        launched_at(&mut profile, "/home/me/graph.py", 17, "scaled");
        profile.totals.span_ns *= 100.0;
        assert_clear_in(&RULE, profile);
    }
}
