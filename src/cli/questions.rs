//! Questions on the terminal: one form, one treatment of answers, one meaning for each letter.
//!
//! A question ends with its letters, the usual answer in upper case: `[y/N/d/?]`. `?` explains each
//! of them. An answer is a letter or its word, in any case; an empty one is the usual answer. All
//! else is told, and the question comes again. The end of the input is the answer that does
//! nothing.

use super::context::Context;
use super::error::CliError;

/// A letter that answers a question. It means the same in every question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Letter {
    /// The work in question is done.
    Yes,
    /// Nothing is done, or the question before comes again.
    No,
    /// The difference is shown, and the question comes again.
    Difference,
    /// A part is selected in the review.
    Select,
    /// Each touching hunk is merged by a choice of its own.
    Merge,
    /// The changes that the question is about are kept.
    Keep,
    /// The other side takes their place.
    Other,
    /// Both sides are kept.
    Both,
    /// All stays as it is, to be decided later.
    #[cfg(feature = "mount")]
    Leave,
    /// All of it is thrown away.
    #[cfg(feature = "mount")]
    Discard,
}

impl Letter {
    fn key(self) -> char {
        match self {
            Self::Yes => 'y',
            Self::No => 'n',
            Self::Difference => 'd',
            Self::Select => 's',
            Self::Merge => 'm',
            Self::Keep => 'k',
            Self::Other => 'o',
            Self::Both => 'b',
            #[cfg(feature = "mount")]
            Self::Leave => 'l',
            #[cfg(feature = "mount")]
            Self::Discard => 'x',
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Difference => "difference",
            Self::Select => "some",
            Self::Merge => "merge",
            Self::Keep => "keep",
            Self::Other => "other",
            Self::Both => "both",
            #[cfg(feature = "mount")]
            Self::Leave => "leave",
            #[cfg(feature = "mount")]
            Self::Discard => "discard",
        }
    }
}

/// A question with the letters that answer it.
#[derive(Debug)]
pub(in crate::cli) struct Question<'a> {
    text: &'a str,
    /// The letters with what they do here.
    choices: Vec<(Letter, &'a str)>,
    usual: Letter,
}

impl<'a> Question<'a> {
    /// A question without letters. `usual`: the letter of an empty answer.
    pub(in crate::cli) fn new(text: &'a str, usual: Letter) -> Self {
        Self { text, choices: Vec::new(), usual }
    }

    /// A question that only a clear yes answers with yes.
    pub(in crate::cli) fn yes_or_no(text: &'a str) -> Self {
        Self::new(text, Letter::No).or(Letter::Yes, "do it").or(Letter::No, "change nothing")
    }

    /// Offers one more letter. `does`: in words that follow the letter.
    pub(in crate::cli) fn or(mut self, letter: Letter, does: &'a str) -> Self {
        self.choices.push((letter, does));
        self
    }

    /// The same, where it is possible.
    pub(in crate::cli) fn or_where(self, is_so: bool, letter: Letter, does: &'a str) -> Self {
        if is_so { self.or(letter, does) } else { self }
    }

    /// Asks until an answer is one. Ctrl-C ends the program.
    pub(in crate::cli) fn ask(&self, context: &Context) -> Result<Letter, CliError> {
        self.ask_by(context, |prompt| context.answer(prompt))
    }

    /// The same with another reader of answers, of which the end of the input is none.
    pub(in crate::cli) fn ask_by(
        &self,
        context: &Context,
        mut read: impl FnMut(&str) -> Result<Option<String>, CliError>,
    ) -> Result<Letter, CliError> {
        loop {
            let Some(answer) = read(&self.prompt())? else { return Ok(self.at_end()) };
            match (self.letter_of(&answer), answer.as_str()) {
                (Some(letter), _) => return Ok(letter),
                (None, "?") => self.explain(context),
                (None, _) => {
                    let letters: Vec<String> =
                        self.choices.iter().map(|(it, _)| it.key().to_string()).collect();
                    let letters = letters.join(", ");
                    context.say(format_args!("the answer is one of {letters}; ? explains them"));
                }
            }
        }
    }

    fn prompt(&self) -> String {
        let key = |letter: Letter| match letter == self.usual {
            true => letter.key().to_ascii_uppercase(),
            false => letter.key(),
        };
        let keys: Vec<String> =
            self.choices.iter().map(|(letter, _)| key(*letter).to_string()).collect();
        format!("{} [{}/?] ", self.text, keys.join("/"))
    }

    fn letter_of(&self, answer: &str) -> Option<Letter> {
        if answer.is_empty() {
            return Some(self.usual);
        }
        let answer = answer.to_lowercase();
        let is_it = |letter: Letter| {
            let mut key = [0; 4];
            answer == *letter.key().encode_utf8(&mut key) || answer == letter.word()
        };
        self.choices.iter().map(|(letter, _)| *letter).find(|letter| is_it(*letter))
    }

    /// The answer that does nothing.
    fn at_end(&self) -> Letter {
        let has_no = self.choices.iter().any(|(letter, _)| *letter == Letter::No);
        if has_no { Letter::No } else { self.usual }
    }

    fn explain(&self, context: &Context) {
        for (letter, does) in &self.choices {
            let usual = if *letter == self.usual { " (Enter)" } else { "" };
            context.say(format_args!("  {}  {does}{usual}", letter.key()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_words_and_nothing_are_answers_and_all_else_is_none() {
        let question = Question::yes_or_no("go on?");
        let of = |answer: &str| question.letter_of(answer);
        assert_eq!(question.prompt(), "go on? [y/N/?] ");
        assert_eq!(["y", "Y", "yes", "YES"].map(of), [Some(Letter::Yes); 4]);
        assert_eq!(["n", "no", ""].map(of), [Some(Letter::No); 3]);
        assert_eq!(["ye", "yy", "d", "?", "ja", "y n"].map(of), [None; 6]);
        assert_eq!(question.at_end(), Letter::No);
    }

    #[test]
    fn no_two_letters_are_the_same() {
        let mut all = vec![
            Letter::Yes,
            Letter::No,
            Letter::Difference,
            Letter::Select,
            Letter::Merge,
            Letter::Keep,
            Letter::Other,
            Letter::Both,
        ];
        #[cfg(feature = "mount")]
        all.extend([Letter::Leave, Letter::Discard]);
        let mut keys: Vec<char> = all.iter().map(|letter| letter.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
        assert!(all.iter().all(|letter| letter.word().len() > 1));
    }
}
