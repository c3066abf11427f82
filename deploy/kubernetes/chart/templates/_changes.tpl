{{- /* Each takes (list $ OBJECT), changes the object, and writes nothing. */}}

{{- define "xpud.daemonset" -}}
{{- $values := (index . 0).Values }}
{{- $object := index . 1 }}
{{- $pod := $object.spec.template.spec }}
{{- $image := $values.image }}
{{- $suffix := printf ":%s" ($image.tag | default (index . 0).Chart.AppVersion) }}
{{- if $image.digest }}{{ $suffix = printf "@%s" $image.digest }}{{ end }}
{{- range concat $pod.containers ($pod.initContainers | default list) }}
{{- $_ := set . "image" (printf "%s%s" $image.repository $suffix) }}
{{- $_ := set . "imagePullPolicy" $image.pullPolicy }}
{{- end }}
{{- with $values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge dict . ($pod.nodeSelector | default dict)) }}{{ end }}
{{- if not (kindIs "invalid" $values.tolerations) }}{{ $_ := set $pod "tolerations" $values.tolerations }}{{ end }}
{{- if eq $object.metadata.name "xpud" }}
{{- $container := index $pod.containers 0 }}
{{- $_ := set $container "args" (concat $container.args $values.daemon.options) }}
{{- $_ := set $pod.securityContext "supplementalGroups" (concat $pod.securityContext.supplementalGroups $values.daemon.groups) }}
{{- if $values.daemon.hostPID }}{{ $_ := set $pod "hostPID" true }}{{ end }}
{{- else if or $values.grants $values.slots }}
{{- /* So that another configuration restarts the agent. */}}
{{- $sum := list $values.grants $values.slots | toJson | sha256sum }}
{{- $_ := set $object.spec.template.metadata "annotations" (dict "xpud.dev/configuration" $sum) }}
{{- end }}
{{- if and $values.grants (eq $object.metadata.name "xpud-node-agent") }}
{{- /* The socket's folder is the node's, at the same path. */}}
{{- $folder := dir ($values.grants.socket | default "/run/xpud-agent/agent.sock") }}
{{- $container := index $pod.containers 0 }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts (dict "name" "grants" "mountPath" $folder)) }}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "grants" "hostPath" (dict "path" $folder "type" "DirectoryOrCreate"))) }}
{{- end }}
{{- end }}

{{- define "xpud.configuration" -}}
{{- $values := (index . 0).Values }}
{{- $data := (index . 1).data }}
{{- if or $values.grants $values.slots }}
{{- $configuration := index $data "agent.yaml" | fromYaml }}
{{- $_ := set $configuration "grants" ($values.grants | default (dict "socket" "off")) }}
{{- with $values.slots }}{{ $_ := set $configuration.kubernetes "slots" . }}{{ end }}
{{- $_ := set $data "agent.yaml" (printf "%s\n" (toYaml $configuration)) }}
{{- end }}
{{- end }}
