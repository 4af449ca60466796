//! Finds the possible mutants of a source file, and writes the file with some of them.
//!
//! The mutants are those of `cargo-mutants`: a function that returns immediately, a different operator, a
//! condition that is negated or constant. Arguments of macros stay unchanged.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprRepeat, ImplItemConst, ImplItemFn,
    ItemConst, ItemFn, ItemImpl, ItemMod, ItemStatic, Pat, ReturnType, Signature, Stmt,
    TraitItemConst, TraitItemFn, Type, UnOp, parse_quote,
};

/// A mutant. Its number is its index among all mutants of all files.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub file: String,
    pub line: usize,
    pub function: String,
    pub what: String,
    /// Whether the mutant is in a `const` function. While the compiler evaluates the function, a mutant that
    /// the environment activates ([`Choice::Switched`]) is not active.
    pub is_const: bool,
}

/// The mutants that the new text of a file contains, and the condition under which they are active.
pub enum Choice<'a> {
    /// No mutants. The mutants of the file are only listed.
    List,
    /// The mutants with these numbers. Each is active if the environment variable `PEREGRINE_MUTANT` has its
    /// number.
    Switched(&'a BTreeSet<usize>),
    /// One mutant, which is always active.
    Fixed(usize),
}

/// Text that is appended to a file with switched mutants. While the compiler evaluates a `const` function, it
/// cannot read the environment. So no mutant is active during this evaluation.
const SWITCH: &str = r#"
const fn mutant_is_on(number: usize) -> bool {
    const fn never(_: usize) -> bool {
        false
    }
    fn chosen(number: usize) -> bool {
        static CHOSEN: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let read = || std::env::var("PEREGRINE_MUTANT").ok()?.parse().ok();
        *CHOSEN.get_or_init(|| read().unwrap_or(usize::MAX)) == number
    }
    core::intrinsics::const_eval_select((number,), never, chosen)
}
"#;
/// Text that is inserted at the start of a crate with switched mutants.
pub const FEATURES: &str =
    "#![feature(core_intrinsics, const_eval_select)]\n#![allow(internal_features)]\n";

/// Appends the mutants of a source file to `all`. Returns the text of the file with the chosen mutants.
/// Returns `None` if no mutant of this file is chosen.
pub fn mutate(
    file: &str,
    source: &str,
    choice: &Choice<'_>,
    all: &mut Vec<Mutant>,
) -> Option<String> {
    let mut tree = syn::parse_file(source).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut walk = Walk { file, choice, all, within: vec![], is_const: false, changed: false };
    walk.visit_file_mut(&mut tree);
    if !walk.changed {
        return None;
    }
    let mut text = prettyplease::unparse(&tree);
    if matches!(choice, Choice::Switched(_)) {
        text.push_str(SWITCH);
    }
    Some(text)
}

struct Walk<'a> {
    file: &'a str,
    choice: &'a Choice<'a>,
    all: &'a mut Vec<Mutant>,
    /// The names of the type and of the functions that enclose the current place.
    within: Vec<String>,
    is_const: bool,
    changed: bool,
}

/// Returns whether an item exists for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let text = |attribute: &Attribute| attribute.meta.to_token_stream().to_string();
    attributes.iter().map(text).any(|text| text == "test" || text == "cfg (test)")
}

/// Returns values that can replace the result of a function with this return type.
fn returns(output: &ReturnType) -> Vec<Expr> {
    let ReturnType::Type(_, ty) = output else { return vec![parse_quote!(())] };
    let text = ty.to_token_stream().to_string().replace(' ', "");
    match &*text {
        "bool" => vec![parse_quote!(true), parse_quote!(false)],
        "usize" | "u64" | "u32" | "u16" | "u8" | "i32" | "i64" => {
            vec![parse_quote!(0), parse_quote!(1)]
        }
        "String" => vec![parse_quote!(String::new())],
        "Served" => vec![parse_quote!(Ok(()))],
        _ if text.starts_with("Option<()") => vec![parse_quote!(None), parse_quote!(Some(()))],
        _ if text.starts_with("Option<") => vec![parse_quote!(None)],
        _ if text.starts_with("Result<(),") => vec![parse_quote!(Ok(()))],
        _ if text.starts_with("Result<bool,") => {
            vec![parse_quote!(Ok(true)), parse_quote!(Ok(false))]
        }
        _ if text.starts_with("Result<usize,") => vec![parse_quote!(Ok(0)), parse_quote!(Ok(1))],
        _ if text.starts_with("Vec<") => vec![parse_quote!(Vec::new())],
        _ => vec![],
    }
}

/// Returns the operators that can replace an operator.
fn others(operator: &BinOp) -> Vec<BinOp> {
    match operator {
        BinOp::Add(_) => vec![parse_quote!(-)],
        BinOp::Sub(_) => vec![parse_quote!(+)],
        BinOp::Mul(_) | BinOp::Rem(_) => vec![parse_quote!(/)],
        BinOp::Div(_) => vec![parse_quote!(*)],
        BinOp::And(_) => vec![parse_quote!(||)],
        BinOp::Or(_) => vec![parse_quote!(&&)],
        BinOp::BitAnd(_) | BinOp::BitXor(_) => vec![parse_quote!(|)],
        BinOp::BitOr(_) => vec![parse_quote!(&)],
        BinOp::Shl(_) => vec![parse_quote!(>>)],
        BinOp::Shr(_) => vec![parse_quote!(<<)],
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        BinOp::Lt(_) => vec![parse_quote!(<=), parse_quote!(>)],
        BinOp::Le(_) => vec![parse_quote!(<), parse_quote!(>)],
        BinOp::Gt(_) => vec![parse_quote!(>=), parse_quote!(<)],
        BinOp::Ge(_) => vec![parse_quote!(>), parse_quote!(<)],
        BinOp::AddAssign(_) => vec![parse_quote!(-=)],
        BinOp::SubAssign(_) => vec![parse_quote!(+=)],
        BinOp::BitOrAssign(_) => vec![parse_quote!(&=)],
        BinOp::BitAndAssign(_) | BinOp::BitXorAssign(_) => vec![parse_quote!(|=)],
        BinOp::ShlAssign(_) => vec![parse_quote!(>>=)],
        BinOp::ShrAssign(_) => vec![parse_quote!(<<=)],
        _ => vec![],
    }
}

/// Returns whether a condition binds names. A condition that binds names cannot be written twice.
fn binds(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        Expr::Paren(inner) => binds(&inner.expr),
        _ => false,
    }
}

impl Walk<'_> {
    /// Records a mutant. If the mutant is chosen, returns the condition under which it is active.
    fn mutant(&mut self, line: usize, what: String) -> Option<Expr> {
        let number = self.all.len();
        self.all.push(Mutant {
            file: self.file.into(),
            line,
            function: self.within.join("::"),
            what,
            is_const: self.is_const,
        });
        let condition = match self.choice {
            Choice::Switched(chosen) if chosen.contains(&number) => {
                parse_quote!(mutant_is_on(#number))
            }
            Choice::Fixed(chosen) if *chosen == number => parse_quote!(true),
            _ => return None,
        };
        self.changed = true;
        Some(condition)
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &mut Block) {
        if is_for_tests(attributes) || signature.ident == "fmt" {
            return;
        }
        let outside = core::mem::replace(&mut self.is_const, signature.constness.is_some());
        self.within.push(signature.ident.to_string());
        let line = signature.ident.span().start().line;
        let mut first: Vec<Stmt> = Vec::new();
        for value in returns(&signature.output) {
            let text = value.to_token_stream().to_string();
            let is_same = match &*block.stmts {
                [] => true,
                [Stmt::Expr(only, None)] => only.to_token_stream().to_string() == text,
                _ => false,
            };
            if !is_same && let Some(on) = self.mutant(line, format!("returns {text} at once")) {
                first.push(parse_quote!(if #on { return #value; }));
            }
        }
        visit_mut::visit_block_mut(self, block);
        block.stmts.splice(0..0, first);
        self.within.pop();
        self.is_const = outside;
    }

    fn binary(&mut self, mut binary: ExprBinary) -> Expr {
        let (text, line) = (binary.to_token_stream().to_string(), binary.op.span().start().line);
        let mut chosen = Vec::new();
        for other in others(&binary.op) {
            let what = format!("`{text}` has {}", other.to_token_stream());
            if let Some(on) = self.mutant(line, what) {
                chosen.push((on, other));
            }
        }
        visit_mut::visit_expr_binary_mut(self, &mut binary);
        let (left, right) = (binary.left.clone(), binary.right.clone());
        let mut whole = Expr::Binary(binary);
        for (on, other) in chosen {
            whole = parse_quote!((if #on { #left #other #right } else { #whole }));
        }
        whole
    }
}

impl VisitMut for Walk<'_> {
    fn visit_item_mod_mut(&mut self, item: &mut ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit_mut::visit_item_mod_mut(self, item);
        }
    }

    fn visit_item_impl_mut(&mut self, item: &mut ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.within.push(item.self_ty.to_token_stream().to_string().replace(' ', ""));
        visit_mut::visit_item_impl_mut(self, item);
        self.within.pop();
    }

    fn visit_item_fn_mut(&mut self, item: &mut ItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut ImplItemFn) {
        self.function(&item.attrs, &item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        visit_mut::visit_arm_mut(self, arm);
        let Some((_, guard)) = &mut arm.guard else { return };
        if binds(guard) {
            return;
        }
        let (text, line) = (guard.to_token_stream().to_string(), guard.span().start().line);
        for value in [true, false] {
            if let Some(on) = self.mutant(line, format!("guard `{text}` is {value}")) {
                let old = guard.clone();
                **guard = parse_quote!((if #on { #value } else { #old }));
            }
        }
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Binary(binary) if !binds(&binary.left) && !binds(&binary.right) => {
                *expression = self.binary(binary.clone());
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_) | UnOp::Neg(_)) => {
                let line = unary.op.span().start().line;
                let what = format!("`{}` loses its operator", unary.to_token_stream());
                let on = self.mutant(line, what);
                visit_mut::visit_expr_unary_mut(self, unary);
                if let Some(on) = on {
                    let inner = &unary.expr;
                    *expression = parse_quote!((if #on { #inner } else { #unary }));
                }
            }
            _ => visit_mut::visit_expr_mut(self, expression),
        }
    }

    // Constants and statics have no mutants, because only the compiler evaluates them.
    fn visit_item_const_mut(&mut self, _: &mut ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut TraitItemConst) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_expr_repeat_mut(&mut self, repeat: &mut ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }
}
