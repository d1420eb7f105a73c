//! Deflates the page that Vite has built.

fn main() {
    apex_deflated::files(["built/page.html"]);
}
