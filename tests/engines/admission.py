"""A ValidatingAdmissionPolicy as an API server applies it: its CEL expressions are evaluated by Google's library, which has the optional types of
Kubernetes' dialect. An expression that ends in an error denies the request (failurePolicy Fail)."""

import pathlib

import yaml
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"


def evaluated(expression: str, **values):
    """Returns what a CEL expression gives. Raises ValueError if it does not compile or ends in an error."""
    environment = cel.NewEnv(variables={name: cel.Type.DYN for name in values}, extensions=[ext_optional.ExtOptional()])
    try:
        value = environment.compile(expression).eval(data=values)
    except Exception as failure:  # the library has exceptions of its own
        raise ValueError(f"{expression}: {failure}") from failure
    if value.type() == cel.Type.ERROR:
        raise ValueError(f"{expression}: {value.value()}")
    return value.plain_value()


def service_account(namespace: str, name: str, node: str | None) -> dict:
    """The userInfo of a pod's token; `node`: where the pod runs, which tokens name since Kubernetes 1.30."""
    extra = {"authentication.kubernetes.io/pod-name": [f"{name}-x"]} | ({NODE_OF_TOKEN: [node]} if node is not None else {})
    return {"username": f"system:serviceaccount:{namespace}:{name}", "uid": "1", "extra": extra,
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]}


class Policy:
    """The one policy of a file, with its binding."""

    def __init__(self, items: list[dict]):
        (policy,) = [item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]
        self.name, spec = policy["metadata"]["name"], policy["spec"]
        (binding,) = [item["spec"] for item in items if item["kind"] == "ValidatingAdmissionPolicyBinding"]
        if (binding["policyName"], binding["validationActions"], spec["failurePolicy"]) != (self.name, ["Deny"], "Fail"):
            raise ValueError(f"the policy {self.name} is not enforced: {binding}, failurePolicy {spec['failurePolicy']}")
        if "matchResources" in binding or "paramKind" in spec:
            raise ValueError("matchResources of a binding and parameters of a policy are not evaluated here")
        self._spec = spec

    @classmethod
    def of(cls, path: pathlib.Path) -> "Policy":
        return cls(list(yaml.safe_load_all(path.read_text())))

    def _concerns(self, operation: str, group: str, version: str, resource: str) -> bool:
        wanted = {"operations": operation, "apiGroups": group, "apiVersions": version, "resources": resource}
        return any(all({value, "*"} & set(rule[name]) for name, value in wanted.items()) for rule in self._spec["matchConstraints"]["resourceRules"])

    def denial(self, operation: str, resource: str, user: dict, item: dict, old: dict | None = None) -> str | None:
        """Returns the message with which a request of resource.k8s.io is denied, or None."""
        group, version = item["apiVersion"].split("/")
        if not self._concerns(operation, group, version, resource):
            return None
        request = {"operation": operation, "userInfo": user, "name": item["metadata"].get("name", ""),
                   "resource": {"group": group, "version": version, "resource": resource}}
        known = {"request": request, "object": item, "oldObject": old}
        try:
            if not all(evaluated(condition["expression"], **known) is True for condition in self._spec.get("matchConditions", [])):
                return None
            known["variables"] = {}
            for variable in self._spec.get("variables", []):
                known["variables"][variable["name"]] = evaluated(variable["expression"], **known)
            for validation in self._spec["validations"]:
                if evaluated(validation["expression"], **known) is not True:
                    return evaluated(validation["messageExpression"], **known) if "messageExpression" in validation else validation["message"]
        except ValueError as failure:
            return f"expression failed: {failure}"
        return None
