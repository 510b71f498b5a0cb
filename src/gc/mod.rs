//! Collection of what nothing needs any more.
