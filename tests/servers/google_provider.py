"""A provider for Terraform with the schemas of Google's, which makes nothing: Google's own is in no package registry.

`google_schemas.json` has the names and types of the resources that a module of ours uses. It was read from the types of
the package cdktf-cdktf-provider-google, which is generated from the schemas of Google's provider:
`python -m tests.servers.google_provider WHEEL`. Terraform validates and plans by them. What only Google would know,
such as the address of an account, is a text that says what it is.
"""

import ast
import json
import re
import sys
import zipfile
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMAS = Path(__file__).with_name("google_schemas.json")
USED = (
    "cloud_scheduler_job",
    "dataproc_workflow_template",
    "monitoring_alert_policy",
    "monitoring_notification_channel",
    "project_iam_member",
    "secret_manager_secret",
    "secret_manager_secret_iam_member",
    "service_account",
    "service_account_iam_member",
    "storage_bucket",
    "storage_bucket_iam_member",
)
_META = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners", "timeouts"}
_PLAIN = {"str": "string", "jsii.Number": "number", "bool": "bool"}
_STRINGS, _NUMBERS, _FLAGS, _BYTES, _MESSAGES = 9, 3, 8, 12, 11
# The messages of Terraform's protocol 6 that a plan needs: number, type and name of each field; * is for many
_MESSAGES_OF_PROTOCOL: dict[str, dict[int, tuple[str, Any]]] = {
    "Value": {1: ("msgpack", _BYTES), 2: ("json", _BYTES)},
    "Diagnostic": {1: ("severity", _NUMBERS), 2: ("summary", _STRINGS)},
    "Attribute": {1: ("name", _STRINGS), 2: ("type", _BYTES), 4: ("required", _FLAGS), 5: ("optional", _FLAGS),
                  6: ("computed", _FLAGS)},
    "Nested": {1: ("type_name", _STRINGS), 2: ("block", "Block"), 3: ("nesting", _NUMBERS), 4: ("min_items", _NUMBERS),
               5: ("max_items", _NUMBERS)},
    "Block": {2: ("attributes", "*Attribute"), 3: ("block_types", "*Nested")},
    "Schema": {1: ("version", _NUMBERS), 2: ("block", "Block")},
    "Entry": {1: ("key", _STRINGS), 2: ("value", "Schema")},
    "Schemas": {1: ("provider", "Schema"), 2: ("resource_schemas", "*Entry")},
    "Plan": {1: ("type_name", _STRINGS), 3: ("proposed_new_state", "Value")},
    "Planned": {1: ("planned_state", "Value"), 4: ("diagnostics", "*Diagnostic")},
    "Nothing": {},
}  # fmt: skip


def _types() -> Any:
    """The classes of the messages by their names."""
    file = descriptor_pb2.FileDescriptorProto(name="plan.proto", package="plan", syntax="proto3")
    for name, fields in _MESSAGES_OF_PROTOCOL.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            is_message = isinstance(kind, str)
            message.field.add(
                name=field,
                number=number,
                label=3 if is_message and kind.startswith("*") else 1,
                type=_MESSAGES if is_message else kind,
                type_name=f".plan.{kind.lstrip('*')}" if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"plan.{name}") for name in _MESSAGES_OF_PROTOCOL}
    return {name: message_factory.GetMessageClass(one) for name, one in found.items()}


TYPES = _types()


def _block(schema: dict[str, Any]) -> Any:
    """A block of the protocol."""
    block = TYPES["Block"]()
    for name, one in schema.items():
        if "block" not in one:
            block.attributes.add(
                name=name,
                type=json.dumps(one["type"]).encode(),
                required=one["use"] == "required",
                optional=one["use"] == "optional",
                computed=one["use"] == "computed",
            )
            continue
        many = 0 if one["many"] else 1
        least = 1 if one["use"] == "required" else 0
        block.block_types.add(type_name=name, block=_block(one["block"]), nesting=2, min_items=least, max_items=many)
    return block


class Provider:
    """The answers of the provider."""

    def __init__(self, unpack: Any) -> None:
        self.schemas: dict[str, dict[str, Any]] = json.loads(SCHEMAS.read_text())["resources"]
        self.unpack = unpack

    def GetProviderSchema(self, _asked: Any, _context: Any) -> Any:  # noqa: N802 - Terraform's name
        """All schemas; the provider itself takes no setting here."""
        answer = TYPES["Schemas"]()
        answer.provider.block.SetInParent()
        for name, schema in self.schemas.items():
            answer.resource_schemas.add(key=name).value.block.CopyFrom(_block(schema))
        return answer

    def PlanResourceChange(self, asked: Any, _context: Any) -> Any:  # noqa: N802 - Terraform's name
        """The resource as it is wanted, and a text for each value that Google would choose."""
        wanted = self.unpack(asked.proposed_new_state.msgpack)
        name = next((wanted[key] for key in ("account_id", "secret_id", "name") if wanted.get(key)), asked.type_name)
        for key, one in self.schemas[asked.type_name].items():
            if one["use"] == "computed" and wanted[key] is None:
                wanted[key] = f"{key} of {name}" if one["type"] == "string" else None
        return TYPES["Planned"](planned_state={"json": json.dumps(wanted).encode()})

    def serve(self) -> tuple[Any, str]:
        """Start the server; returns it, and the value of TF_REATTACH_PROVIDERS by which Terraform finds it."""
        server = grpc.server(futures.ThreadPoolExecutor(4))
        nothing = "ValidateProviderConfig", "ValidateResourceConfig", "ConfigureProvider", "StopProvider"
        methods = {name: _method("Nothing", lambda *_: TYPES["Nothing"]()) for name in nothing}
        methods["GetProviderSchema"] = _method("Nothing", self.GetProviderSchema)
        methods["PlanResourceChange"] = _method("Plan", self.PlanResourceChange)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tfplugin6.Provider", methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        place = {"Network": "tcp", "String": f"127.0.0.1:{port}"}
        reached = {"Protocol": "grpc", "ProtocolVersion": 6, "Pid": 1, "Test": True, "Addr": place}
        return server, json.dumps({"registry.terraform.io/hashicorp/google": reached})


def _method(asked: str, answer: Any) -> Any:
    """A method of the server, which is asked with a message of this name."""
    return grpc.unary_unary_rpc_method_handler(
        answer, TYPES[asked].FromString, lambda message: message.SerializeToString()
    )


def read_wheel(path: Path) -> dict[str, Any]:
    """The schemas of USED, from the package's classes."""
    with zipfile.ZipFile(path) as wheel:
        texts = {name: wheel.read(f"cdktf_cdktf_provider_google/{name}/__init__.py").decode() for name in USED}
    return {"from": path.name, "resources": {f"google_{name}": _read_module(text) for name, text in texts.items()}}


def _read_module(text: str) -> dict[str, Any]:
    classes = {one.name: one for one in ast.parse(text).body if isinstance(one, ast.ClassDef)}
    [config] = [
        name for name, one in classes.items() if "TerraformMetaArguments" in " ".join(map(ast.unparse, one.bases))
    ]
    schema = {name: one for name, one in _read_struct(classes, config).items() if name not in _META}
    schema["id"] = {"type": "string", "use": "computed"}
    resource = classes[config.removesuffix("Config")]
    answers = (one for one in resource.body if isinstance(one, ast.FunctionDef) and _is_text(one))
    chosen = {one.name for one in answers if not one.name.endswith("_input")} - schema.keys()
    schema |= {name: {"type": "string", "use": "computed"} for name in chosen}
    return dict(sorted(schema.items()))


def _is_text(method: ast.FunctionDef) -> bool:
    """Whether it is an attribute that is a text."""
    marks = [ast.unparse(mark) for mark in method.decorator_list]
    return "builtins.property" in marks and ast.unparse(method.returns or method) == "builtins.str"


def _read_struct(classes: dict[str, ast.ClassDef], name: str) -> dict[str, Any]:
    [start] = [one for one in classes[name].body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    found = {}
    for argument, default in zip(start.args.kwonlyargs, start.args.kw_defaults, strict=True):
        text = re.sub(r"typing\.|builtins\.", "", ast.unparse(argument.annotation or argument))
        found[argument.arg] = _read_type(classes, text) | {"use": "required" if default is None else "optional"}
    return found


def _read_type(classes: dict[str, ast.ClassDef], text: str) -> dict[str, Any]:
    """The type that an annotation means: `Sequence` is a list, a class of the package is a block."""
    for name in re.findall(r"\w+", text):
        if name in classes:
            return {"block": _read_struct(classes, name), "many": "Sequence" in text}
    plain = next((kind for word, kind in _PLAIN.items() if re.search(rf"\b{re.escape(word)}\b", text)), "")
    collection = "list" if "Sequence" in text else "map" if "Mapping" in text else ""
    return {"type": [collection, plain] if collection else plain}


if __name__ == "__main__":
    SCHEMAS.write_text(json.dumps(read_wheel(Path(sys.argv[1])), indent=1) + "\n")
