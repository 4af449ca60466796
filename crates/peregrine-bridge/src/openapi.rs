//! The OpenAPI 3.1 document of all exports.

use peregrine::interface::{Described, DescribedParameter, DescribedProcedure, Direction, Shape};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::page::path_of;
use crate::schema::{Schemas, object};
use crate::target::{Bound, Target};

/// An export, and its binding. If the export cannot be bound, the failure takes the place of the binding.
pub(crate) type View<'a> = (&'a Target, Result<std::sync::Arc<Bound>, Failure>);

/// Returns the OpenAPI document. Exports whose server cannot be bound have no paths in it.
pub(crate) fn document(views: &[View<'_>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut tags = Vec::new();
    for (target, bound) in views {
        let described = match bound {
            Ok(bound) => bound.described(),
            Err(failure) => {
                tags.push(json!({ "name": target.name, "description": failure.to_string() }));
                continue;
            }
        };
        tags.push(json!({ "name": target.name, "description": described.docs }));
        let all = Schemas::new(described, &target.name);
        for (number, named) in described.types.iter().enumerate() {
            schemas.insert(all.name(number), all.body(&named.body));
        }
        for procedure in described.procedures.iter().filter(|one| is_offered(one)) {
            let operation = operation(&target.name, described, &all, procedure);
            paths.insert(path_of(&target.name, &procedure.name), json!({ "post": operation }));
        }
    }
    schemas.insert("Failure".to_owned(), failure());
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Peregrine bridge", "version": env!("CARGO_PKG_VERSION") },
        "tags": tags,
        "paths": paths,
        "components": { "schemas": schemas, "responses": { "Failure": {
            "description": "The call failed. `executed` says whether the procedure ran.",
            "headers": { "Peregrine-Executed": { "schema": executed() } },
            "content": { "application/json": {
                "schema": { "$ref": "#/components/schemas/Failure" },
            } },
        } } },
    })
}

/// Returns whether HTTP can carry the parameters of a procedure.
pub(crate) fn is_offered(procedure: &DescribedProcedure) -> bool {
    procedure.parameters.iter().all(|one| one.direction != Direction::Callback)
}

fn operation(
    export: &str,
    described: &Described,
    all: &Schemas<'_>,
    procedure: &DescribedProcedure,
) -> Value {
    let mut members = Map::new();
    let mut required = Vec::new();
    let mut back = Map::new();
    let mut has_items = false;
    for parameter in &procedure.parameters {
        let name = || parameter.name.clone();
        match parameter.direction {
            Direction::Sink => {
                has_items = true;
                continue;
            }
            Direction::Out => {
                back.insert(name(), argument(all, parameter));
                let text = "The maximum number of elements of the returned buffer.";
                let count = json!({ "type": "integer", "minimum": 0, "description": text });
                members.insert(name(), count);
                continue;
            }
            Direction::Source => {
                members.insert(name(), json!({ "type": "array", "items": all.of(&parameter.ty) }));
                required.push(json!(parameter.name));
                continue;
            }
            Direction::InOut => {
                back.insert(name(), argument(all, parameter));
            }
            _ => {}
        }
        members.insert(name(), argument(all, parameter));
        if described.default_argument(parameter).is_none() {
            required.push(json!(parameter.name));
        }
    }
    let mut result = Map::from_iter([("result".to_owned(), all.of(&procedure.result))]);
    if !back.is_empty() {
        let names = back.keys().map(|name| json!(name)).collect();
        result.insert("out".to_owned(), object(back, names));
    }
    let names = result.keys().map(|name| json!(name)).collect();
    let mut content = json!({ "application/json": { "schema": object(result, names) } });
    if has_items {
        // OpenAPI 3.1 cannot describe a body in which each line has its own schema.
        content["application/x-ndjson"] = json!({ "schema": { "type": "string" } });
    }
    json!({
        "operationId": format!("{export}.{}", procedure.name),
        "tags": [export],
        "description": procedure.docs,
        "parameters": [{
            "name": "Peregrine-Timeout-Ms",
            "in": "header",
            "schema": { "type": "integer", "minimum": 1 },
        }],
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": object(members, required) } },
        },
        "responses": {
            "200": {
                "description": "The procedure returned a result.",
                "headers": { "Peregrine-Executed": { "schema": executed() } },
                "content": content,
            },
            "422": {
                "description": "The procedure returned an error, which is in `error.value`.",
                "content": { "application/json": { "schema": { "allOf": [
                    { "$ref": "#/components/schemas/Failure" },
                    { "properties": { "error": {
                        "properties": { "value": all.of(&procedure.error) },
                    } } },
                ] } } },
            },
            "default": { "$ref": "#/components/responses/Failure" },
        },
    })
}

fn argument(all: &Schemas<'_>, parameter: &DescribedParameter) -> Value {
    match parameter.shape {
        Shape::One => all.of(&parameter.ty),
        Shape::Text => json!({ "type": "string" }),
        Shape::Buffer => all.array(&parameter.ty, None),
    }
}

fn executed() -> Value {
    json!({ "enum": ["no", "maybe", "yes"] })
}

fn failure() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["kind", "executed", "text", "advice"],
            "properties": {
                "kind": text(), "executed": executed(), "text": text(), "advice": text(), "value": {},
            },
        } },
    })
}
