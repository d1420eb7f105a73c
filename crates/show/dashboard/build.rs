//! Deflates the description of the interface.

fn main() {
    apex_deflated::files(["openapi.json"]);
}
