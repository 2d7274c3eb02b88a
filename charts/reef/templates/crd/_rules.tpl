{{/*
Removes from a definition, in place, what servers before 1.25 do not know or what is refused on the way to them: CEL rules,
and lists of values that hold null. The operator checks the same and says so in the status.
*/}}
{{- define "reef.dropRules" -}}
{{- if kindIs "map" . -}}
{{- $_ := unset . "x-kubernetes-validations" -}}
{{- if kindIs "slice" .enum -}}
{{- if has nil .enum -}}{{- $_ := unset . "enum" -}}{{- end -}}
{{- end -}}
{{- range . -}}{{- include "reef.dropRules" . -}}{{- end -}}
{{- else if kindIs "slice" . -}}
{{- range . -}}{{- include "reef.dropRules" . -}}{{- end -}}
{{- end -}}
{{- end }}
