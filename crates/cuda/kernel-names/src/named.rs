//! Enumerations whose values have one name each, in JSON and in text.

/// Defines an enumeration, the name of each value, and `name` that gives it.
macro_rules! named {
    (
        $(#[$of_all:meta])*
        pub enum $type:ident { $( $(#[$of_one:meta])* $value:ident = $name:literal, )* }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $type { $( $(#[$of_one])* #[serde(rename = $name)] $value, )* }

        impl $type {
            /// Its name, as JSON has it.
            pub fn name(self) -> &'static str {
                match self { $( Self::$value => $name, )* }
            }

            /// All values.
            pub const ALL: &'static [Self] = &[$( Self::$value, )*];
        }
    };
}

pub(crate) use named;
