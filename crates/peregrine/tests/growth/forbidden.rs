//! Changes interfaces at random, so that each change breaks a rule of docs/EVOLUTION.md.

use peregrine::interface::{
    DescribedBody, DescribedField, DescribedGrowth, DescribedParameter, DescribedPlainVariant,
    DescribedType, DescribedVariant, Direction, Rule, Shape,
};

use crate::evolve::{Age, Chance, widen};

impl Age {
    /// Makes a random change that breaks a rule, and returns the rule. Returns `None` if the chosen
    /// change is not possible in this interface.
    pub(crate) fn break_a_rule(&mut self, chance: &mut Chance) -> Option<Rule> {
        let procedure = chance.below(self.whole.procedures.len());
        let place = chance.below(self.whole.procedures[procedure].parameters.len());
        let all = self.whole.types.len();
        let ty = self.ty(chance, 2);
        let new = self.field(chance, ty, true);
        let name = self.name('a');
        let one = &mut self.whole.procedures[procedure];
        let broken = match chance.below(13) {
            0 => {
                self.whole.version += 1;
                Rule::Interface
            }
            1 => {
                let parameter = DescribedParameter {
                    name,
                    direction: Direction::In,
                    shape: Shape::One,
                    ty: DescribedType::U8,
                    max_len: None,
                    growth: DescribedGrowth::default(),
                };
                one.parameters.push(parameter);
                Rule::NoDefault
            }
            2 if one.parameters.len() > 1 => {
                one.parameters.rotate_left(1);
                Rule::Order
            }
            3 if !one.oneway => {
                one.result = match &one.result {
                    DescribedType::Text => DescribedType::Bool,
                    _ => DescribedType::Text,
                };
                Rule::Type
            }
            4 => {
                let parameter = one.parameters.get_mut(place)?;
                (parameter.direction, parameter.shape) =
                    match (parameter.direction, parameter.shape) {
                        (Direction::In, Shape::Buffer) => (Direction::In, Shape::One),
                        (_, Shape::Text) => return None,
                        (Direction::Lent, _) => (Direction::Out, Shape::Buffer),
                        (Direction::Out, _) => (Direction::Lent, Shape::Buffer),
                        _ => (Direction::In, Shape::Buffer),
                    };
                Rule::Passing
            }
            5 => {
                let is_bounded = |one: &&mut DescribedParameter| {
                    one.shape != Shape::One && one.direction != Direction::Out
                };
                one.parameters.get_mut(place).filter(is_bounded)?.max_len = Some(7);
                Rule::LessRoom
            }
            11 => {
                // A one-way procedure cannot become a procedure whose caller waits for a result.
                one.oneway.then(|| one.oneway = false)?;
                Rule::OneWay
            }
            12 => {
                let is_stream = |one: &&mut DescribedParameter| {
                    matches!(one.direction, Direction::Sink | Direction::Source)
                };
                let stream = one.parameters.get_mut(place).filter(is_stream)?;
                stream.ty = DescribedType::Option(Box::new(stream.ty.clone()));
                Rule::Type
            }
            6 if self.whole.procedures.len() > 1 => {
                self.whole.procedures.clear();
                let procedure = self.procedure(chance);
                self.whole.procedures.push(procedure);
                Rule::NoProcedure
            }
            number => {
                let one = chance.below(all);
                self.break_type(one, number, new, chance)?
            }
        };
        self.settle(chance);
        Some(broken)
    }

    fn break_type(
        &mut self,
        number: usize,
        way: usize,
        new: DescribedField,
        chance: &mut Chance,
    ) -> Option<Rule> {
        let is_error =
            self.whole.procedures.iter().any(|one| one.error == DescribedType::Named(number));
        match &mut self.whole.types.get_mut(number)?.body {
            DescribedBody::Struct(fields) => {
                let place = chance.below(fields.len());
                match way {
                    7 if !matches!(new.ty, DescribedType::Option(_)) => {
                        let growth = DescribedGrowth::default();
                        fields.insert(place, DescribedField { growth, ..new });
                        Some(Rule::NoDefault)
                    }
                    8 if fields.len() > 1 => {
                        fields.rotate_left(1);
                        Some(Rule::Order)
                    }
                    9 => {
                        let one = fields.get_mut(place).filter(|one| !one.growth.widens)?;
                        widen(&mut one.ty, chance).then_some(Rule::Width)
                    }
                    _ => {
                        let one = fields.get_mut(place)?;
                        one.ty = match &one.ty {
                            DescribedType::Tuple(_) => DescribedType::F64,
                            _ => DescribedType::Tuple(vec![DescribedType::F64]),
                        };
                        Some(Rule::Type)
                    }
                }
            }
            DescribedBody::Enum(variants) => {
                if is_error || variants.iter().any(|one| one.is_other) {
                    return None;
                }
                let growth = DescribedGrowth::default();
                let fields = vec![DescribedField { growth, ..new.clone() }];
                let name = format!("v{}", &new.name[1..]);
                variants.push(DescribedVariant {
                    name,
                    fields,
                    was: Vec::new(),
                    is_other: false,
                    case: None,
                });
                Some(Rule::ClosedEnum)
            }
            DescribedBody::PlainEnum { variants, .. } => match way {
                7 => {
                    let place = chance.below(variants.len());
                    let one = variants.get_mut(place)?;
                    one.value = 120;
                    Some(Rule::Type)
                }
                _ if variants.iter().any(|one| one.is_other) => None,
                _ => {
                    let name = format!("v{}", &new.name[1..]);
                    let (value, was) = (119, Vec::new());
                    variants.push(DescribedPlainVariant { name, value, was, is_other: false });
                    Some(Rule::ClosedEnum)
                }
            },
            _ => None,
        }
    }
}
