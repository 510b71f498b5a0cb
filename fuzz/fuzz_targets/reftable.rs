#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nono::fuzzing::reftable(bytes));
