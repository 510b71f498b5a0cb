//! Tables whose keys are all known.
//!
//! `serde(deny_unknown_fields)` lists what it knows; people want to be told what they meant. So the
//! keys are read by a seed of our own. The format (JSON or TOML) adds the line and the column.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::nearest::suggestion;

/// Reads a key, which must be one of these.
pub(super) struct Key(pub(super) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<&'static str, D::Error> {
        input.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one of the keys {}", self.0.join(", "))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<&'static str, E> {
        let known = self.0.iter().find(|known| **known == key);
        known.copied().ok_or_else(|| {
            E::custom(format_args!("unknown key {key:?}, {}", suggestion(key, self.0)))
        })
    }
}

/// Makes a struct of optional values, read from a table without any other key. A key may have older
/// names: `rollback | undo`.
macro_rules! strict_table {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$field_meta:meta])* $field:ident $(| $alias:ident)* : $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq)]
        $vis struct $name {
            $( $(#[$field_meta])* pub(super) $field: Option<$type>, )*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Table;

                impl<'de> serde::de::Visitor<'de> for Table {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a table")
                    }

                    fn visit_map<M: serde::de::MapAccess<'de>>(
                        self,
                        mut map: M,
                    ) -> Result<$name, M::Error> {
                        const KEYS: &[&str] =
                            &[$(stringify!($field), $(stringify!($alias),)*)*];
                        let mut table = $name::default();
                        while let Some(key) = map.next_key_seed($crate::config::strict::Key(KEYS))? {
                            match key {
                                $(
                                    stringify!($field) $(| stringify!($alias))* => {
                                        let value = Some(map.next_value()?);
                                        if std::mem::replace(&mut table.$field, value).is_some() {
                                            return Err(serde::de::Error::duplicate_field(
                                                stringify!($field),
                                            ));
                                        }
                                    }
                                )*
                                _ => {}
                            }
                        }
                        Ok(table)
                    }
                }

                input.deserialize_map(Table)
            }
        }
    };
}

pub(super) use strict_table;
