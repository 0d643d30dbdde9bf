"""The sentences of a reply to a person, in each language that there is."""

from collections.abc import Mapping
from dataclasses import dataclass

from lethe.contract.sets import ReplyLanguage

LANGUAGES: Mapping[ReplyLanguage, str] = {
    ReplyLanguage.EN: "English",
    ReplyLanguage.DE: "Deutsch",
    ReplyLanguage.FR: "Français",
    ReplyLanguage.ES: "Español",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The sentences of a reply in one language; `{...}` is filled in. `months`: from January on; `day`: a date;
    `signs`: between thousands, and before decimals."""

    controller: str
    subject: str
    greeting: str
    received: str
    forgotten: str
    widened: str
    nothing_held: str
    rejected: str
    complaint: str
    extended: str
    acknowledged: str
    paused: str
    withdrawn: str
    proof: str
    certificate: str
    closing: str
    contact: str
    page: str
    erased: str
    odds: str
    absence: str
    verifying: str
    months: str
    day: str
    signs: str


WORDINGS: Mapping[ReplyLanguage, Wording] = {
    ReplyLanguage.EN: Wording(
        controller="Controller: {controller}",
        subject="Your request to be forgotten: case {case}",
        greeting="Dear Sir or Madam,",
        received="we received your request on {received}.",
        forgotten="On {completed} we completed it. Your records were erased, and every machine-learning model that had "
        "learned from them was updated so that it no longer depends on them beyond the bound below.",
        widened="On {completed} we completed it. Your records were erased. At least one model that had learned from "
        "them was updated to a bound that is weaker than what we would call forgotten; it is stated below.",
        nothing_held="On {completed} we completed it. We held no records about you.",
        rejected="We do not act on it, for this reason: {explanation}",
        complaint="You may lodge a complaint with a supervisory authority, and seek a judicial remedy.",
        extended="We need more time, and will answer by {due}, for this reason: {explanation}",
        acknowledged="We will answer you by {due}. Your case number is {case}.",
        paused="Before that we have to establish who you are; until then the time limit is paused.",
        withdrawn="It was withdrawn, and nothing was erased on account of it.",
        proof="What was done can be checked by anybody, from these signed certificates alone:",
        certificate="Certificate {id}: were it as likely as not beforehand that your records were ever used, an "
        "attacker who sees the published model and knows everything but its random noise would say rightly which it "
        "was in at most {accuracy} % of all cases. A coin is right in 50 % of cases.",
        closing="Yours faithfully,",
        contact="Data protection officer: {contact}",
        page="What was erased, and how to check it",
        erased="Records of yours that were erased for the model {model}: {records}. Its version {version} was "
        "published without them. The certificate is of {issued}.",
        odds="Its epsilon is {epsilon}, at a delta of {delta}: anything that the published model may show is at "
        "most {factor} times as probable as it would be if your records had never been used, plus a probability of "
        "{delta}.",
        absence="That we held nothing about you is signed too, and is checked in the same way.",
        verifying="Anybody can check the signature, and compute every number again, without us and offline: pip "
        "install 'lethe-sdk[cli,verify]', then lethe certificate verify FILE. The file is the signed certificate, "
        "with our public keys beside it (FILE.jwks.json). We give you both on request; name the id of the "
        "certificate.",
        months="January February March April May June July August September October November December",
        day="{day} {month} {year}",
        signs=",.",
    ),
    ReplyLanguage.DE: Wording(
        controller="Verantwortlicher: {controller}",
        subject="Ihr Antrag auf Löschung: Aktenzeichen {case}",
        greeting="Sehr geehrte Damen und Herren,",
        received="Ihr Antrag ist am {received} bei uns eingegangen.",
        forgotten="Wir haben ihn am {completed} abgeschlossen. Ihre Datensätze wurden gelöscht, und jedes Modell des "
        "maschinellen Lernens, das aus ihnen gelernt hatte, wurde so angepasst, dass es über die unten genannte "
        "Schranke hinaus nicht mehr von ihnen abhängt.",
        widened="Wir haben ihn am {completed} abgeschlossen. Ihre Datensätze wurden gelöscht. Mindestens ein Modell, "
        "das aus ihnen gelernt hatte, wurde nur bis zu einer Schranke angepasst, die schwächer ist als das, was wir "
        "Vergessen nennen würden; sie ist unten angegeben.",
        nothing_held="Wir haben ihn am {completed} abgeschlossen. Über Sie waren keine Datensätze gespeichert.",
        rejected="Wir kommen ihm aus folgendem Grund nicht nach: {explanation}",
        complaint="Sie können Beschwerde bei einer Aufsichtsbehörde und einen gerichtlichen Rechtsbehelf einlegen.",
        extended="Wir brauchen mehr Zeit und antworten Ihnen bis zum {due}, aus folgendem Grund: {explanation}",
        acknowledged="Wir antworten Ihnen bis zum {due}. Ihr Aktenzeichen ist {case}.",
        paused="Zuvor müssen wir feststellen, wer Sie sind; bis dahin ruht die Frist.",
        withdrawn="Er wurde zurückgenommen; seinetwegen wurde nichts gelöscht.",
        proof="Was geschehen ist, lässt sich allein anhand dieser signierten Bescheinigungen nachprüfen:",
        certificate="Bescheinigung {id}: Wäre vorab gleich wahrscheinlich, dass Ihre Datensätze je verwendet wurden "
        "oder nicht, so läge ein Angreifer, der das veröffentlichte Modell sieht und alles außer dem zufälligen "
        "Rauschen kennt, mit seinem Urteil darüber in höchstens {accuracy} % aller Fälle richtig. Ein Münzwurf liegt "
        "in 50 % der Fälle richtig.",
        closing="Mit freundlichen Grüßen",
        contact="Datenschutzbeauftragte oder -beauftragter: {contact}",
        page="Was gelöscht wurde, und wie es sich prüfen lässt",
        erased="Ihre für das Modell {model} gelöschten Datensätze: {records}. Seine Version {version} wurde ohne sie "
        "veröffentlicht. Die Bescheinigung ist vom {issued}.",
        odds="Das Epsilon der Bescheinigung ist {epsilon}, bei einem Delta von {delta}: Was auch immer das "
        "veröffentlichte Modell zeigt, ist höchstens {factor}-mal so wahrscheinlich, wie wenn Ihre Datensätze nie "
        "verwendet worden wären, zuzüglich einer Wahrscheinlichkeit von {delta}.",
        absence="Auch dass nichts über Sie gespeichert war, ist signiert und lässt sich ebenso prüfen.",
        verifying="Die Signatur kann jeder ohne uns und ohne Netz prüfen und dabei jede Zahl neu berechnen: pip "
        "install 'lethe-sdk[cli,verify]', dann lethe certificate verify DATEI. Die Datei ist die signierte "
        "Bescheinigung, daneben liegen unsere öffentlichen Schlüssel (DATEI.jwks.json). Beides geben wir Ihnen auf "
        "Anfrage; nennen Sie die Kennung der Bescheinigung.",
        months="Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        day="{day}. {month} {year}",
        signs=".,",
    ),
    ReplyLanguage.FR: Wording(
        controller="Responsable du traitement : {controller}",
        subject="Votre demande d'effacement : dossier {case}",
        greeting="Madame, Monsieur,",
        received="nous avons reçu votre demande le {received}.",
        forgotten="Nous l'avons menée à bien le {completed}. Vos données ont été effacées, et chaque modèle "
        "d'apprentissage automatique qui en avait appris a été mis à jour de sorte qu'il n'en dépend plus au-delà de "
        "la borne indiquée ci-dessous.",
        widened="Nous l'avons menée à bien le {completed}. Vos données ont été effacées. Au moins un modèle qui en "
        "avait appris n'a été mis à jour que jusqu'à une borne plus faible que ce que nous appellerions un oubli ; "
        "elle est indiquée ci-dessous.",
        nothing_held="Nous l'avons menée à bien le {completed}. Nous ne détenions aucune donnée vous concernant.",
        rejected="Nous n'y donnons pas suite, pour la raison suivante : {explanation}",
        complaint="Vous pouvez introduire une réclamation auprès d'une autorité de contrôle et former un recours "
        "juridictionnel.",
        extended="Il nous faut plus de temps ; nous vous répondrons au plus tard le {due}, pour la raison suivante : "
        "{explanation}",
        acknowledged="Nous vous répondrons au plus tard le {due}. Votre numéro de dossier est {case}.",
        paused="Auparavant nous devons établir votre identité ; jusque-là le délai est suspendu.",
        withdrawn="Elle a été retirée ; rien n'a été effacé en conséquence.",
        proof="Chacun peut vérifier ce qui a été fait, à partir de ces seuls certificats signés :",
        certificate="Certificat {id} : s'il était a priori aussi probable que vos données aient un jour été utilisées "
        "que non, quiconque voit le modèle publié et connaît tout sauf son bruit aléatoire en jugerait correctement "
        "dans {accuracy} % des cas au plus. Une pièce de monnaie a raison dans 50 % des cas.",
        closing="Veuillez agréer, Madame, Monsieur, nos salutations distinguées.",
        contact="Délégué à la protection des données : {contact}",
        page="Ce qui a été effacé, et comment le vérifier",
        erased="Vos enregistrements effacés pour le modèle {model} : {records}. Sa version {version} a été publiée "
        "sans eux. Le certificat date du {issued}.",
        odds="Son epsilon est de {epsilon}, pour un delta de {delta} : tout ce que le modèle publié peut montrer est "
        "au plus {factor} fois aussi probable que si vos données n'avaient jamais été utilisées, plus une "
        "probabilité de {delta}.",
        absence="Que nous ne détenions rien à votre sujet est également signé, et se vérifie de la même façon.",
        verifying="Chacun peut vérifier la signature et recalculer chaque nombre, sans nous et hors ligne : pip "
        "install 'lethe-sdk[cli,verify]', puis lethe certificate verify FICHIER. Le fichier est le certificat "
        "signé, accompagné de nos clés publiques (FICHIER.jwks.json). Nous vous remettons les deux sur demande ; "
        "indiquez l'identifiant du certificat.",
        months="janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        day="{day} {month} {year}",
        signs="\u00a0,",
    ),
    ReplyLanguage.ES: Wording(
        controller="Responsable del tratamiento: {controller}",
        subject="Su solicitud de supresión: expediente {case}",
        greeting="Estimado señor o estimada señora:",
        received="Recibimos su solicitud el {received}.",
        forgotten="La completamos el {completed}. Sus registros fueron suprimidos, y cada modelo de aprendizaje "
        "automático que había aprendido de ellos fue actualizado de modo que ya no depende de ellos más allá de la "
        "cota que se indica abajo.",
        widened="La completamos el {completed}. Sus registros fueron suprimidos. Al menos un modelo que había "
        "aprendido de ellos solo fue actualizado hasta una cota más débil de lo que llamaríamos olvidar; se indica "
        "abajo.",
        nothing_held="La completamos el {completed}. No teníamos ningún registro sobre usted.",
        rejected="No le damos curso por el siguiente motivo: {explanation}",
        complaint="Puede presentar una reclamación ante una autoridad de control y ejercitar acciones judiciales.",
        extended="Necesitamos más tiempo; le responderemos a más tardar el {due}, por el siguiente motivo: "
        "{explanation}",
        acknowledged="Le responderemos a más tardar el {due}. Su número de expediente es {case}.",
        paused="Antes debemos comprobar quién es usted; hasta entonces el plazo queda suspendido.",
        withdrawn="Fue retirada, y nada se suprimió a causa de ella.",
        proof="Cualquiera puede comprobar lo que se hizo a partir de estos certificados firmados:",
        certificate="Certificado {id}: si de antemano fuera igual de probable que sus registros se hubieran usado "
        "alguna vez o no, quien viera el modelo publicado y conociera todo salvo su ruido aleatorio acertaría cuál de "
        "las dos cosas ocurrió en el {accuracy} % de los casos como máximo. Una moneda acierta en el 50 % de los "
        "casos.",
        closing="Atentamente,",
        contact="Delegado de protección de datos: {contact}",
        page="Qué se suprimió y cómo comprobarlo",
        erased="Registros suyos suprimidos para el modelo {model}: {records}. Su versión {version} se publicó sin "
        "ellos. El certificado es del {issued}.",
        odds="El épsilon del certificado es {epsilon}, con un delta de {delta}: todo lo que el modelo publicado "
        "pueda mostrar es, como mucho, {factor} veces tan probable como si sus registros nunca se hubieran usado, más "
        "una probabilidad de {delta}.",
        absence="También está firmado que no teníamos nada sobre usted, y se comprueba del mismo modo.",
        verifying="Cualquiera puede comprobar la firma y volver a calcular cada número, sin nosotros y sin "
        "conexión: pip install 'lethe-sdk[cli,verify]', y después lethe certificate verify ARCHIVO. El archivo es "
        "el certificado firmado, junto a nuestras claves públicas (ARCHIVO.jwks.json). Le damos ambos si los "
        "solicita; indique el identificador del certificado.",
        months="enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        day="{day} de {month} de {year}",
        signs="\u00a0,",
    ),
}
