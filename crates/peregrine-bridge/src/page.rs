//! The web page: the exports, their descriptions, and a form for each procedure.

use core::fmt::{self, Display, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use peregrine::interface::{
    Described, DescribedBody, DescribedParameter, DescribedProcedure, DescribedType, Direction,
    Shape,
};

use crate::openapi::{View, is_offered};

/// The style of the page.
pub(crate) const CSS: &str = include_str!("../page/page.css");
/// The script of the page, which sends the forms.
pub(crate) const SCRIPT: &str = include_str!("../page/page.js");

/// The characters that are escaped in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the path of a procedure.
pub(crate) fn path_of(export: &str, procedure: &str) -> String {
    let encoded = |part| utf8_percent_encode(part, ESCAPED);
    format!("/{}/{}", encoded(export), encoded(procedure))
}

/// Text in which the characters that HTML interprets are escaped.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.to_string().chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Returns the page.
pub(crate) fn html(views: &[View<'_>]) -> String {
    let mut html = String::from(concat!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<title>Peregrine bridge</title>\n<link rel=\"icon\" href=\"data:,\">\n",
        "<link rel=\"stylesheet\" href=\"/page.css\">\n<script src=\"/page.js\" defer></script>\n",
        "<header><h1>Peregrine bridge</h1>\n",
        "<p>Exports that can be called as JSON over HTTP. Programs read ",
        "<a href=\"/openapi.json\">openapi.json</a>.</p></header>\n",
        "<noscript><p>The forms need JavaScript.</p></noscript>\n",
        "<nav aria-label=\"Exports\"><ul>\n",
    ));
    // Writing to a `String` cannot fail.
    let _ = write(&mut html, views);
    html
}

fn write(html: &mut String, views: &[View<'_>]) -> fmt::Result {
    for (target, bound) in views {
        let name = Escaped(&target.name);
        write!(html, "<li><a href=\"#{name}\">{name}</a>")?;
        html.push_str(if bound.is_ok() { "</li>\n" } else { " (not reachable)</li>\n" });
    }
    html.push_str("</ul></nav>\n<main>\n");
    for (target, bound) in views {
        let (name, address) = (Escaped(&target.name), Escaped(&target.address));
        writeln!(html, "<section id=\"{name}\"><h2>{name}</h2>")?;
        match bound {
            Err(failure) => {
                writeln!(html, "<p>At <code>{address}</code>.</p>")?;
                writeln!(html, "<p class=\"failure\">{}</p>", Escaped(failure))?;
            }
            Ok(bound) => {
                let described = bound.described();
                let (interface, version) = (Escaped(&described.name), described.version);
                writeln!(
                    html,
                    "<p>Interface <code>{interface}</code>, version {version}, at \
                     <code>{address}</code>.</p>"
                )?;
                docs(html, &described.docs)?;
                for (number, one) in described.procedures.iter().enumerate() {
                    let id = format!("{}.{number}", target.name);
                    procedure(html, &target.name, &id, described, one)?;
                }
                writeln!(
                    html,
                    "<details><summary>Description</summary><pre>{}</pre></details>",
                    Escaped(described)
                )?;
            }
        }
        html.push_str("</section>\n");
    }
    html.push_str("</main>\n</html>\n");
    Ok(())
}

/// Writes documentation: paragraphs are separated by empty lines.
fn docs(html: &mut String, docs: &str) -> fmt::Result {
    let paragraphs = docs.split("\n\n").filter(|one| !one.trim().is_empty());
    paragraphs.into_iter().try_for_each(|one| writeln!(html, "<p>{}</p>", Escaped(one.trim())))
}

fn procedure(
    html: &mut String,
    export: &str,
    id: &str,
    described: &Described,
    procedure: &DescribedProcedure,
) -> fmt::Result {
    let signature = described.procedure_text(procedure);
    writeln!(
        html,
        "<details><summary><b>{}</b></summary>\n<p><code>{}</code></p>",
        Escaped(&procedure.name),
        Escaped(signature)
    )?;
    docs(html, &procedure.docs)?;
    if !is_offered(procedure) {
        html.push_str("<p>It has a callback, which HTTP cannot carry.</p></details>\n");
        return Ok(());
    }
    writeln!(html, "<form data-path=\"{}\">", Escaped(path_of(export, &procedure.name)))?;
    let given = procedure.parameters.iter().filter(|one| one.direction != Direction::Sink);
    for (number, parameter) in given.enumerate() {
        field(html, &format!("{id}.{number}"), described, parameter)?;
    }
    html.push_str(
        "<p><button>Call</button> <button type=\"button\" disabled>Stop</button></p>\n\
         <p role=\"status\"></p>\n\
         <pre role=\"log\" tabindex=\"0\" aria-label=\"Answer\" hidden></pre>\n</form></details>\n",
    );
    Ok(())
}

/// Returns how the script sends the text of a field: as a string (`text`) or as JSON (`json`).
fn kind(parameter: &DescribedParameter) -> &'static str {
    use DescribedType::{Char, F32, F64, I8, I16, I32, I64, I128, Text, U8, U16, U32, U64, U128};
    match (parameter.direction, parameter.shape, &parameter.ty) {
        (Direction::Out, ..) => "text",
        (Direction::Source, ..) => "json",
        (_, Shape::Text, _) | (_, Shape::One, Text | Char) => "text",
        // The bridge also accepts a number as a string of digits. The script sends this string, because it
        // would round large numbers.
        (_, Shape::One, U8 | U16 | U32 | U64 | U128 | I8 | I16 | I32 | I64 | I128 | F32 | F64) => {
            "text"
        }
        _ => "json",
    }
}

/// Writes the field of a form.
fn field(
    html: &mut String,
    id: &str,
    described: &Described,
    parameter: &DescribedParameter,
) -> fmt::Result {
    let (id, name) = (Escaped(id), Escaped(&parameter.name));
    let is_out = parameter.direction == Direction::Out;
    let is_optional = is_out || described.default_argument(parameter).is_some();
    let text = match is_out {
        true => "the maximum number of returned elements".to_owned(),
        false => described.parameter_text(parameter),
    };
    write!(html, "<p><label for=\"{id}\"><b>{name}</b> <small>{}", Escaped(text))?;
    html.push_str(if is_optional {
        " (may be empty)</small></label>\n"
    } else {
        "</small></label>\n"
    });
    let attributes =
        format!("id=\"{id}\" name=\"{name}\"{}", if is_optional { " data-optional" } else { "" });
    if let Some(choices) = choices(described, parameter) {
        write!(html, "<select {attributes} data-kind=\"json\">")?;
        if is_optional {
            html.push_str("<option></option>");
        }
        for (value, shown) in choices {
            write!(html, "<option value=\"{}\">{}</option>", Escaped(value), Escaped(shown))?;
        }
        html.push_str("</select></p>\n");
        return Ok(());
    }
    match kind(parameter) {
        "text" => {
            writeln!(html, "<input {attributes} data-kind=\"text\" autocomplete=\"off\"></p>")
        }
        kind => writeln!(
            html,
            "<textarea {attributes} data-kind=\"{kind}\" rows=\"2\" spellcheck=\"false\" \
             placeholder=\"JSON\"></textarea></p>"
        ),
    }
}

/// Returns the values that can be chosen in a field, each as JSON and as text. Returns `None` if the field is
/// not a choice.
fn choices(described: &Described, parameter: &DescribedParameter) -> Option<Vec<(String, String)>> {
    if parameter.shape != Shape::One || parameter.direction.is_stream() {
        return None;
    }
    match &parameter.ty {
        DescribedType::Bool => {
            Some(["false", "true"].map(|one| (one.to_owned(), one.to_owned())).to_vec())
        }
        DescribedType::Named(number) => match &described.types.get(*number)?.body {
            DescribedBody::PlainEnum { variants, .. } => Some(
                variants
                    .iter()
                    .map(|one| (serde_json::Value::from(&*one.name).to_string(), one.name.clone()))
                    .collect(),
            ),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_no_markup() {
        let text = Escaped("</pre><script>'&\"").to_string();
        assert_eq!(text, "&lt;/pre&gt;&lt;script&gt;&#39;&amp;&quot;");
    }

    #[test]
    fn paths_are_encoded() {
        assert_eq!(path_of("a-b_c.d", "größe"), "/a-b_c.d/gr%C3%B6%C3%9Fe");
    }
}
