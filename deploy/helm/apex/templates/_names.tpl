{{/* The chart's names: those of deploy/kubernetes for a release `apex`. */}}
{{- define "apex.hub" -}}{{ .Release.Name }}-hub{{- end }}
{{- define "apex.deliver" -}}{{ .Release.Name }}-deliver{{- end }}
{{- define "apex.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}
{{- define "apex.claim" -}}{{ .Values.hub.storage.existingClaim | default (include "apex.hub" .) }}{{- end }}
{{- define "apex.url" -}}
{{ ternary "https" "http" (ne .Values.hub.tls.secret "") }}://{{ include "apex.hub" . }}.{{ .Release.Namespace }}.svc:{{ .Values.hub.service.port }}
{{- end }}
{{- define "apex.labels" -}}
app.kubernetes.io/name: apex
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{/* Where an image comes from. */}}
{{- define "apex.container" -}}
image: {{ include "apex.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}
{{/* Of containers that need no rights. */}}
{{- define "apex.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
