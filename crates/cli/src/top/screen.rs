//! The terminal of `apex top`: it is set up, drawn to, and always restored at the end.
//!
//! Three threads send events to the thread that draws: keys, signals, and one snapshot of the
//! sessions a second. None of them polls, and a slow snapshot does not delay keys.

use super::watch::{Looked, Watcher};
use anyhow::{Context, bail};
use apex_top::{Action, Key, Theme, Top};
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, Stdout};
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The least time from the end of a look to the next one.
const PAUSE: Duration = Duration::from_secs(1);
/// The least ratio of a pause to the look before it: looking never takes more than a fifth of a
/// core, whatever is recorded.
const PAUSE_BY_LOOK: u32 = 4;

/// A message to the drawing thread.
enum Message {
    Looked(Vec<Looked>),
    Typed(Event),
    Signal(libc::c_int),
    /// A thread has ended that should not have.
    Failed(&'static str),
}

/// The next step of the screen after a message.
enum Next {
    Draw,
    Quit,
    DieOf(libc::c_int),
}

/// Shows the screen until the user or a signal ends it.
///
/// # Errors
/// If the terminal cannot be set up, or is gone.
pub fn run(mut top: Top, watcher: Watcher, theme: Theme) -> anyhow::Result<ExitCode> {
    let (sender, messages) = channel();
    // The threads that start below inherit that these signals wait for the one that takes them.
    let signals = block_signals();
    restore_before_panics();
    let mut screen = Screen::enter().context("cannot set up the terminal")?;
    spawn(&sender, "signals", move |sender| {
        while let Some(signal) = next_signal(&signals) {
            sender.send(Message::Signal(signal)).ok()?;
        }
        None
    });
    spawn(&sender, "keys", |sender| {
        while let Ok(event) = event::read() {
            sender.send(Message::Typed(event)).ok()?;
        }
        None
    });
    spawn(&sender, "looks", move |sender| look(watcher, sender));
    let ended = show(&mut top, &mut screen, &messages, theme);
    drop(screen);
    if let Next::DieOf(signal) = ended? {
        die_of(signal, &signals);
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks until the receiver is gone.
fn look(mut watcher: Watcher, sender: &Sender<Message>) -> Option<()> {
    loop {
        let started = Instant::now();
        let looked = watcher.look();
        let took = started.elapsed();
        sender.send(Message::Looked(looked)).ok()?;
        std::thread::sleep(PAUSE.max(took * PAUSE_BY_LOOK));
    }
}

/// Starts a thread that sends a message when it ends.
fn spawn(
    sender: &Sender<Message>,
    name: &'static str,
    work: impl FnOnce(&Sender<Message>) -> Option<()> + Send + 'static,
) {
    struct Told(Sender<Message>, &'static str);
    impl Drop for Told {
        fn drop(&mut self) {
            // Nobody listens where the screen has ended first.
            let _ = self.0.send(Message::Failed(self.1));
        }
    }
    let told = Told(sender.clone(), name);
    std::thread::spawn(move || work(&told.0));
}

/// Draws, and does what messages say, until one ends it.
fn show(
    top: &mut Top,
    screen: &mut Screen,
    messages: &Receiver<Message>,
    theme: Theme,
) -> anyhow::Result<Next> {
    loop {
        screen.draw(top, theme)?;
        let first = messages.recv().context("no thread is left")?;
        // What has come meanwhile needs no frame of its own.
        for message in std::iter::once(first).chain(messages.try_iter()) {
            match take(top, screen, message)? {
                Next::Draw => {}
                end => return Ok(end),
            }
        }
    }
}

fn take(top: &mut Top, screen: &mut Screen, message: Message) -> anyhow::Result<Next> {
    match message {
        Message::Looked(looked) => {
            looked.into_iter().for_each(|(folder, look)| top.update(&folder, look));
            Ok(Next::Draw)
        }
        Message::Typed(Event::Key(key)) if key.kind != KeyEventKind::Release => type_key(top, screen, key),
        Message::Typed(_) => Ok(Next::Draw),
        Message::Signal(signal) => Ok(Next::DieOf(signal)),
        Message::Failed(thread) => {
            bail!("the thread for {thread} has ended: the terminal is gone, or it failed")
        }
    }
}

fn type_key(top: &mut Top, screen: &mut Screen, key: KeyEvent) -> anyhow::Result<Next> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => return Ok(Next::Quit),
        KeyCode::Char('z') if is_control => screen.suspend()?,
        KeyCode::Char('l') if is_control => screen.repaint()?,
        _ if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {}
        code => {
            if let Some(key) = key_of(code)
                && top.key(key) == Action::Quit
            {
                return Ok(Next::Quit);
            }
        }
    }
    Ok(Next::Draw)
}

fn key_of(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

/// The terminal while the screen has it; dropping it gives it back.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let mut screen = Self { terminal };
        screen.take()?;
        Ok(screen)
    }

    fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        self.repaint()
    }

    /// Draws all of the next frame. (`Terminal::clear` would ask the terminal where its cursor is,
    /// which not every terminal answers.)
    fn repaint(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from(size))
    }

    fn draw(&mut self, top: &Top, theme: Theme) -> io::Result<()> {
        self.terminal.draw(|frame| top.render(frame.area(), frame.buffer_mut(), theme))?;
        Ok(())
    }

    /// Stops as Ctrl-Z stops other programs, until the shell lets it go on.
    fn suspend(&mut self) -> io::Result<()> {
        restore();
        // SAFETY: a plain system call; the process stops in it.
        unsafe { libc::kill(libc::getpid(), libc::SIGTSTP) };
        self.take()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Where it is gone there is nothing to give back.
fn restore() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Restores the terminal before a panic prints its message, which would be lost with the screen.
fn restore_before_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}

/// Blocks the signals that end programs; returns them.
fn block_signals() -> libc::sigset_t {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the set that it is given, the other calls take a set that is
    // filled.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
        signals.assume_init()
    }
}

/// Waits for one of the signals.
fn next_signal(signals: &libc::sigset_t) -> Option<libc::c_int> {
    let mut signal = 0;
    // SAFETY: reads the set and writes one number.
    let result = unsafe { libc::sigwait(signals, &raw mut signal) };
    (result == 0).then_some(signal)
}

/// Ends the process as the signal would have.
fn die_of(signal: libc::c_int, signals: &libc::sigset_t) {
    // SAFETY: the default action is a valid one; the set is filled.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, signals, std::ptr::null_mut());
        libc::raise(signal);
    }
}
