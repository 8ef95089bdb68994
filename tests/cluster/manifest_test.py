#!/usr/bin/env python3
"""Holds what `tessera k8s render` writes against schemas of Kubernetes.

    tests/cluster/manifest_test.py --tessera build/dev/tessera [--schemas DIRECTORY]

Every kind of job, with few options and with all of them, is read by PyYAML. A PyTorchJob, TrainJob or JobSet is held
against the CustomResourceDefinition of its project in the directory, unknown fields refused; core objects (Job,
Service, ...) against the schemas of the package kubernetes-validate, where it is installed. Exit status 77, and a line
that says why, where there is nothing to hold them against.
"""

import argparse
import pathlib
import re
import subprocess
import sys

CRDS = {
    "PyTorchJob": "pytorchjob-training-operator-v1.8.1.yaml",
    "TrainJob": "trainjob-trainer-v2.2.1.yaml",
    "JobSet": "jobset-main-08dfbdf.yaml",
}
COMMAND = ["train", "--num_layers", "2", "--dataset", "it's: a \"file\" #1", "--lr=1e-4", "--resume_from_checkpoint", "yes",
           "0x1", "{}"]
FULL = """--nodes 4 --nproc_per_node 8 --gpus_per_node 8 --instance_type p5.48xlarge --cpus 90 --memory 512Gi --claim
    checkpoints --claim_size 1Ti --storage_class fsx --mount /data --namespace training --name llama --grace 300
    --max_restarts 3 --pull_policy Always --shm_size 64Gi --etcd_image etcd:v3.5.19 --secret s3cret""".split()


def schema_errors(value, schema, path):
    """What breaks an OpenAPI v3 schema of a CRD, as the API server reads it."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            yield f"{path}: {value!r} is neither a number nor a text"
        return
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: null"
        return
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}
    kind = schema.get("type")
    if kind and (not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{path}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, (int, float)) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"
    if isinstance(value, str) and not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: {value!r} has a wrong length"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: {len(value)} items"
        for i, item in enumerate(value):
            yield from schema_errors(item, schema.get("items", {}), f"{path}[{i}]")
    if isinstance(value, dict):
        known, other = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}.{name} is missing"
        free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
        for name, inner in value.items():
            if name in known:
                yield from schema_errors(inner, known[name], f"{path}.{name}")
            elif isinstance(other, dict):
                yield from schema_errors(inner, other, f"{path}.{name}")
            elif known and not free:
                yield f"{path}.{name} is unknown"


def crd_errors(document, directory, yaml):
    definition = yaml.load((directory / CRDS[document["kind"]]).read_text(), yaml.CSafeLoader)
    group, version = document["apiVersion"].split("/")
    if definition["spec"]["group"] != group or definition["spec"]["names"]["kind"] != document["kind"]:
        return [f"{group} is not the group of {document['kind']}"]
    schemas = [v["schema"]["openAPIV3Schema"] for v in definition["spec"]["versions"] if v["name"] == version]
    if not schemas:
        return [f"there is no version {version}"]
    schema = dict(schemas[0])
    schema["properties"] = {**schema["properties"], "metadata": {"type": "object"}}
    return list(schema_errors(document, schema, document["kind"]))


def core_errors(document):
    import kubernetes_validate
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{document['kind']}: {error.message} at {list(error.path)}"]
    return []


def words_of(documents):
    """The commands of all containers with tessera in them."""
    found = []

    def walk(value):
        if isinstance(value, dict):
            if isinstance(value.get("command"), list) and value["command"][0] == "tessera":
                found.append(value["command"])
            for inner in value.values():
                walk(inner)
        if isinstance(value, list):
            for inner in value:
                walk(inner)
    walk(documents)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--schemas", type=pathlib.Path)
    options = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("manifest_test: skipped, PyYAML is not installed (python3-yaml)")
        return 77
    try:
        import kubernetes_validate  # noqa: F401
        core = True
    except ImportError:
        core = False
        print("manifest_test: core objects are read only, the package kubernetes-validate is not installed")
    crds = options.schemas is not None and options.schemas.is_dir()
    if not crds:
        print("manifest_test: no directory of CustomResourceDefinitions (TESSERA_CRD_SCHEMAS): kinds of operators are read only")
    errors, count = [], 0
    for kind in ("job", "jobset", "pytorchjob", "trainjob"):
        for more in ([], ["--nodes", "2"], FULL, *([["--elastic", *FULL], ["--elastic", "--min_nodes", "1", *FULL]] if kind == "pytorchjob" else [])):
            words = [options.tessera, "k8s", "render", "--kind", kind, "--image", "tessera:1", *more, "--", *COMMAND]
            text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout
            documents = list(yaml.load_all(text, yaml.CSafeLoader))
            for command in (found := words_of(documents)):
                if command[-len(COMMAND):] != COMMAND:
                    errors.append(f"{kind}: the words came out as {command}")
            if not found:
                errors.append(f"{kind}: no container runs tessera")
            for document in documents:
                count += 1
                if document["kind"] in CRDS:
                    errors += crd_errors(document, options.schemas, yaml) if crds else []
                elif core:
                    errors += core_errors(document)
    if crds:
        # The check itself finds what is wrong.
        broken = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
                  "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": "two", "unknown": 1}}}}
        if len(crd_errors(broken, options.schemas, yaml)) != 2:
            errors.append(f"the check finds {crd_errors(broken, options.schemas, yaml)} in a broken PyTorchJob")
    for error in errors:
        print(f"manifest_test: {error}")
    print(f"manifest_test: {count} objects, {len(errors)} errors")
    if not errors and not crds and not core:
        print("manifest_test: skipped, there is no schema to hold the objects against")
        return 77
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
