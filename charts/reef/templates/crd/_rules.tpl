{{/* Removes CEL rules from a definition, in place. The operator checks the same and says so in the status. */}}
{{- define "reef.dropRules" -}}
{{- if kindIs "map" . -}}
{{- $_ := unset . "x-kubernetes-validations" -}}
{{- range . -}}{{- include "reef.dropRules" . -}}{{- end -}}
{{- else if kindIs "slice" . -}}
{{- range . -}}{{- include "reef.dropRules" . -}}{{- end -}}
{{- end -}}
{{- end }}
