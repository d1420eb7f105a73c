//! Sets in words: names of parameters, and sums as formulas.

use launch_condition::{Product, Sum, Term};

use crate::sets::{Base, Sets};

const AXES: [&str; 3] = ["x", "y", "z"];

impl Sets {
    /// The name of a base: of a word inside of a parameter, with its place in bytes.
    pub fn name(&self, base: &Base) -> String {
        match base {
            Base::Parameter { offset, .. } => self.at_offset(*offset),
            Base::Variable(name) => name.clone(),
        }
    }

    /// A sum as a formula of parameters and `threads.x`, the number of threads along an axis.
    pub fn formula(&self, sum: &Sum) -> String {
        let mut text = String::new();
        // Pointers first, numbers last.
        let mut products: Vec<&Product> = sum.0.iter().filter(|product| product.factor != 0).collect();
        products.sort_by_key(|product| (product.terms.is_empty(), product.factor != 1));
        for product in products {
            let sign = match (text.is_empty(), product.factor < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            text.push_str(sign);
            text.push_str(&self.product(product));
        }
        if text.is_empty() { "0".to_owned() } else { text }
    }

    /// The size of a product.
    fn product(&self, product: &Product) -> String {
        let factor = product.factor.unsigned_abs();
        let number = (factor != 1 || product.terms.is_empty()).then(|| factor.to_string());
        let terms = product.terms.iter().map(|term| self.term(term));
        number.into_iter().chain(terms).collect::<Vec<String>>().join("*")
    }

    fn term(&self, term: &Term) -> String {
        match *term {
            Term::Threads(axis) => format!("threads.{}", AXES.get(usize::from(axis)).unwrap_or(&"?")),
            Term::Parameter { offset, .. } => self.at_offset(offset),
        }
    }

    /// The name of what lies at an offset of the parameter space.
    fn at_offset(&self, offset: u32) -> String {
        let after = self.parameters.partition_point(|parameter| parameter.offset <= offset);
        let Some(parameter) = after.checked_sub(1).and_then(|index| self.parameters.get(index)) else {
            return format!("[{offset}]");
        };
        match offset - parameter.offset {
            0 => parameter.name.clone(),
            inside => format!("{}[{inside}]", parameter.name),
        }
    }
}
